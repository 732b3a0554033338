/** Requests to destinations that clients choose, kept where the operator lets them go. Depends on undici alone. */
export { type AddressClass, classify } from "./addresses.ts";
export { type DestinationUrl, MAX_HREF_BYTES, parseDestinationUrl } from "./destination-url.ts";
export { DestinationListError, type Destinations, parseDestinations } from "./destinations.ts";
export {
  categoryOf,
  EgressError,
  EgressRefusal,
  type Failure,
  type FailureCategory,
  type Outcome,
  outcomeOfStatus,
} from "./failure.ts";
export type { ResolvedAddress, SystemLookup } from "./resolver.ts";
export { createSender, type Sender, type SenderOptions } from "./sender.ts";
export { CertificateAuthorityError, checkCertificates } from "./trust.ts";
