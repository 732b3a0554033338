// A certificate authority that lives as long as its process: it gives the demo and the tests a receiver
// whose HTTPS is real. Keys stay in memory; nothing is written to disk.

import "./reflect.ts";
import { KeyObject, webcrypto } from "node:crypto";
import * as x509 from "@peculiar/x509";

const ALGORITHM = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" };
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/** A certificate and its private key (PKCS#8), both PEM: what `https.createServer` takes. */
export interface Certificate {
  readonly certPem: string;
  readonly keyPem: string;
}

/** What a certificate is for. At least one name is needed; the dates default to an hour ago and a day on. */
export interface CertificateRequest {
  readonly dns?: readonly string[];
  readonly ip?: readonly string[];
  readonly notBefore?: Date;
  readonly notAfter?: Date;
}

/** Something to trust (`certPem`) and something that issues server certificates under it. */
export interface Authority {
  readonly certPem: string;
  /** Issues a server certificate with a fresh key. Throws a `TypeError` where no name is given. */
  issue(names: CertificateRequest): Promise<Certificate>;
}

/**
 * Makes an authority with a fresh ECDSA P-256 key, good for a day.
 *
 * @example
 * const authority = await createAuthority();
 * const certificate = await authority.issue({ dns: ["localhost"], ip: ["127.0.0.1"] });
 */
export async function createAuthority(name = "taisce-notify throwaway authority"): Promise<Authority> {
  const keys = await generateKeys();
  const authority = await x509.X509CertificateGenerator.createSelfSigned(
    {
      serialNumber: serial(),
      name: commonName(name),
      ...validity(),
      signingAlgorithm: ALGORITHM,
      keys,
      extensions: [
        new x509.BasicConstraintsExtension(true, 0, true),
        new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
        await x509.SubjectKeyIdentifierExtension.create(keys.publicKey, false, webcrypto),
      ],
    },
    webcrypto,
  );
  return {
    certPem: pem(authority),
    issue: (names) => issue(authority, keys, names),
  };
}

async function issue(
  authority: x509.X509Certificate,
  authorityKeys: webcrypto.CryptoKeyPair,
  { dns = [], ip = [], notBefore, notAfter }: CertificateRequest,
): Promise<Certificate> {
  if (dns.length + ip.length === 0)
    throw new TypeError("a server certificate needs a DNS name or an address");
  const keys = await generateKeys();
  const certificate = await x509.X509CertificateGenerator.create(
    {
      serialNumber: serial(),
      subject: commonName("taisce-notify throwaway receiver"),
      issuer: authority.subjectName,
      ...validity(notBefore, notAfter),
      signingAlgorithm: ALGORITHM,
      publicKey: keys.publicKey,
      signingKey: authorityKeys.privateKey,
      extensions: [
        new x509.BasicConstraintsExtension(false, undefined, true),
        new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
        new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.serverAuth]),
        new x509.SubjectAlternativeNameExtension([
          ...dns.map((value) => ({ type: "dns" as const, value })),
          ...ip.map((value) => ({ type: "ip" as const, value })),
        ]),
        await x509.SubjectKeyIdentifierExtension.create(keys.publicKey, false, webcrypto),
        await x509.AuthorityKeyIdentifierExtension.create(authorityKeys.publicKey, false, webcrypto),
      ],
    },
    webcrypto,
  );
  return {
    certPem: pem(certificate),
    keyPem: KeyObject.from(keys.privateKey).export({ type: "pkcs8", format: "pem" }).toString(),
  };
}

async function generateKeys(): Promise<webcrypto.CryptoKeyPair> {
  return (await webcrypto.subtle.generateKey(ALGORITHM, true, ["sign", "verify"])) as webcrypto.CryptoKeyPair;
}

// Sixteen random bytes whose first bit is 0: a serial number is a positive integer (RFC 5280, 4.1.2.2).
function serial(): string {
  const bytes = Buffer.from(webcrypto.getRandomValues(new Uint8Array(16)));
  bytes[0] = ((bytes[0] ?? 0) & 0x7f) | 0x40;
  return bytes.toString("hex");
}

function validity(
  notBefore = new Date(Date.now() - HOUR_MS),
  notAfter = new Date(Date.now() + DAY_MS),
): { notBefore: Date; notAfter: Date } {
  return { notBefore, notAfter };
}

function commonName(value: string): x509.Name {
  return new x509.Name([{ CN: [value] }]);
}

function pem(certificate: x509.X509Certificate): string {
  return `${certificate.toString("pem")}\n`;
}
