/** Which certificates are believed: the process's own trust, and what the operator adds to it. */
import { X509Certificate } from "node:crypto";
import { createSecureContext, DEFAULT_MIN_VERSION, getCACertificates, type SecureContext } from "node:tls";

/** The text given as added authorities is not PEM certificates. `message` can follow what names that text. */
export class CertificateAuthorityError extends Error {
  override readonly name = "CertificateAuthorityError";
}

const BEGIN = "-----BEGIN CERTIFICATE-----";
const CERTIFICATE = /-----BEGIN CERTIFICATE-----[\s\S]*?-----END CERTIFICATE-----/g;

/**
 * Forward-secret AEAD suites, those of TLS 1.3 first. No finite-field key exchange in TLS 1.2: the receiver
 * picks its group, and one of 8192 bits costs this thread 250 ms before the certificate is even looked at.
 */
const CIPHERS = [
  "TLS_AES_128_GCM_SHA256",
  "TLS_AES_256_GCM_SHA384",
  "TLS_CHACHA20_POLY1305_SHA256",
  "ECDHE+AESGCM",
  "ECDHE+CHACHA20",
].join(":");

/**
 * Groups for the key exchange, the post-quantum one where OpenSSL has it. Named, since OpenSSL 3.0 (Node 22) offers
 * finite fields of up to 8192 bits in TLS 1.3 as well: 130 ms of this thread where X25519 takes 3.
 */
const GROUPS = [
  ...(Number.parseFloat(process.versions.openssl) >= 3.5 ? ["X25519MLKEM768"] : []),
  "X25519",
  "P-256",
  "P-384",
  "P-521",
].join(":");

/**
 * One context for every connection of a sender. It is built once because it parses every root: some 10 ms,
 * and `tls.connect` with a `ca` option would pay that on each connection.
 *
 * @param extraCa PEM certificates trusted besides Node's default trust (its own list, NODE_EXTRA_CA_CERTS,
 * and the system's store under --use-system-ca)
 * @throws CertificateAuthorityError
 */
export function createTrust(extraCa?: string): SecureContext {
  return createSecureContext({
    // Given here and not left to the defaults: the command line and NODE_OPTIONS can weaken them. An operator
    // who asked for more (--tls-min-v1.3) gets it.
    minVersion: DEFAULT_MIN_VERSION === "TLSv1.3" ? "TLSv1.3" : "TLSv1.2",
    ciphers: CIPHERS,
    ecdhCurve: GROUPS,
    ...(extraCa === undefined ? {} : { ca: [...getCACertificates("default"), ...readCertificates(extraCa)] }),
  });
}

/**
 * Checks the text of a file of added authorities, as `createTrust` will.
 *
 * @throws CertificateAuthorityError
 */
export function checkCertificates(pem: string): void {
  readCertificates(pem);
}

/** Failure policy: fail closed — text that adds no trust is a mistake to show at start-up, not at the first send. */
function readCertificates(pem: string): readonly string[] {
  const certificates = pem.match(CERTIFICATE) ?? [];
  if (!pem.includes(BEGIN)) throw new CertificateAuthorityError("holds no PEM certificate");
  if (pem.split(BEGIN).length - 1 !== certificates.length) {
    throw new CertificateAuthorityError("holds a PEM certificate that has no end");
  }
  for (const [index, certificate] of certificates.entries()) {
    try {
      new X509Certificate(certificate);
    } catch (cause) {
      throw new CertificateAuthorityError(
        `holds a PEM certificate that cannot be read, number ${index + 1}`,
        {
          cause,
        },
      );
    }
  }
  return certificates;
}
