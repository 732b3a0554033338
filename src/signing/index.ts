// What receivers import as "taisce-notify/signing". It needs nothing but Node: no setting, no database.

export { PAYLOAD_VERSION, type Payload, PayloadError, parsePayload } from "./payload.ts";
export { SECRET_BYTES, standardSecret } from "./secret.ts";
export { type SignatureHeaders, sign, signingKey } from "./sign.ts";
export {
  DEFAULT_TOLERANCE_SECONDS,
  explain,
  type VerifyFailure,
  type VerifyOptions,
  type VerifyResult,
  verify,
} from "./verify.ts";
