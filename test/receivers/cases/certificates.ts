// A certificate that is its own authority and a server's at once.

import "../../../src/demo/reflect.ts";
import { KeyObject, webcrypto } from "node:crypto";
import * as x509 from "@peculiar/x509";

const ALGORITHM = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" };

/** Good for an hour, for that DNS name alone, signed by the key that it certifies. */
export async function selfSigned(name: string): Promise<{ cert: string; key: string }> {
  const keys = (await webcrypto.subtle.generateKey(ALGORITHM, true, [
    "sign",
    "verify",
  ])) as webcrypto.CryptoKeyPair;
  const certificate = await x509.X509CertificateGenerator.createSelfSigned(
    {
      serialNumber: "01",
      name: `CN=${name}`,
      notBefore: new Date(Date.now() - 60_000),
      notAfter: new Date(Date.now() + 3_600_000),
      signingAlgorithm: ALGORITHM,
      keys,
      extensions: [new x509.SubjectAlternativeNameExtension([{ type: "dns", value: name }])],
    },
    webcrypto,
  );
  const key = KeyObject.from(keys.privateKey).export({ type: "pkcs8", format: "pem" }).toString();
  return { cert: `${certificate.toString("pem")}\n`, key };
}
