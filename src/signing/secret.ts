// The signing secret: 32 bytes, written as 64 hex digits where it is handed out and as `whsec_` + base64
// where a Standard Webhooks library reads it.

/** Length of a secret in bytes. */
export const SECRET_BYTES = 32;

const STANDARD_PREFIX = "whsec_";
const HEX = /^[0-9a-f]{64}$/i;
// 32 bytes are 43 base64 characters and one `=`; the last character carries two bits that must be zero.
const STANDARD = /^whsec_[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$/;

/**
 * The 32 bytes of a secret in either spelling, or `undefined` for anything else: nothing is trimmed,
 * padded or guessed, since a key that is a little wrong verifies nothing and says nothing.
 */
export function decodeSecret(secret: string): Buffer | undefined {
  if (HEX.test(secret)) return Buffer.from(secret, "hex");
  if (STANDARD.test(secret)) return Buffer.from(secret.slice(STANDARD_PREFIX.length), "base64");
  return undefined;
}

/**
 * The `whsec_` spelling of a secret, which the stock Standard Webhooks libraries take.
 *
 * Throws a `RangeError` for anything but 64 hex digits (or a secret already spelled so); the message does
 * not repeat the secret.
 *
 * @example
 * new Webhook(standardSecret(secret)).verify(body, headers);
 */
export function standardSecret(secret: string): string {
  const bytes = decodeSecret(secret);
  if (bytes === undefined) throw new RangeError("a signing secret is 64 hex digits");
  return STANDARD_PREFIX + bytes.toString("base64");
}
