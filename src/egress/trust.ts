/** Which certificates are believed: the process's own trust, and what the operator adds to it. */
import { X509Certificate } from "node:crypto";
import { createSecureContext, getCACertificates, type SecureContext } from "node:tls";

/** The text given as added authorities is not PEM certificates, or has none. */
export class CertificateAuthorityError extends Error {
  override readonly name = "CertificateAuthorityError";
}

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[\s\S]*?-----END CERTIFICATE-----/g;

/**
 * One context for every connection of a sender. It is built once because it parses every root: some 10 ms,
 * and `tls.connect` with a `ca` option would pay that on each connection.
 *
 * @param extraCa PEM certificates trusted besides Node's default trust (its own list, NODE_EXTRA_CA_CERTS,
 * and the system's store under --use-system-ca)
 * @throws CertificateAuthorityError
 */
export function createTrust(extraCa?: string): SecureContext {
  // Given here and not left to the default, which --tls-min-v1.0 and NODE_OPTIONS move.
  const minVersion = "TLSv1.2";
  if (extraCa === undefined) return createSecureContext({ minVersion });
  return createSecureContext({
    minVersion,
    ca: [...getCACertificates("default"), ...readCertificates(extraCa)],
  });
}

/** Failure policy: fail closed — text that adds no trust is a mistake to show at start-up, not at the first send. */
function readCertificates(pem: string): readonly string[] {
  const certificates = pem.match(CERTIFICATE) ?? [];
  if (certificates.length === 0) throw new CertificateAuthorityError("there is no PEM certificate in it");
  for (const [index, certificate] of certificates.entries()) {
    try {
      new X509Certificate(certificate);
    } catch (cause) {
      throw new CertificateAuthorityError(`certificate ${index + 1} of it cannot be read`, { cause });
    }
  }
  return certificates;
}
