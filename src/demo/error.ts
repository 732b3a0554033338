/** The demo cannot go on; the message is one line for people that says why and what to do. */
export class DemoError extends Error {
  override readonly name = "DemoError";
}
