// Request bodies: at most 1 MiB, one JSON object, no unknown fields, integers exact. An empty body is {}.
import type { IncomingMessage } from "node:http";
import type { z } from "zod";
import { parseExact } from "../json/exact.ts";
import { ApiError } from "./errors.ts";

export const MAX_BODY_BYTES = 1_048_576;
/** What a message may repeat of a body, whose names and nesting are the client's own. */
const MAX_MESSAGE_LENGTH = 300;

/** Decodes whole bodies only, so that one serves all. */
const utf8 = new TextDecoder("utf-8", { fatal: true });

/**
 * Reads a body to its end, and no further than the limit: a longer one is refused by its Content-Length,
 * or as soon as it is longer. How long it may take is the server's `requestTimeout`.
 *
 * It reads from Node's own stream. Through the request's web stream, what is left of a refused body is
 * never drained (its adapter pauses the stream at each chunk), and the server then cuts the connection
 * under the client's next request.
 *
 * @throws ApiError invalid_body
 */
export function readBytes(incoming: IncomingMessage): Promise<Buffer> {
  const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
  if (Number(incoming.headers["content-length"] ?? 0) > MAX_BODY_BYTES) {
    reject(tooLong());
    return promise;
  }
  if (incoming.destroyed) {
    reject(cutShort());
    return promise;
  }
  const chunks: Buffer[] = [];
  let size = 0;
  const onData = (chunk: Buffer) => {
    size += chunk.length;
    if (size <= MAX_BODY_BYTES) chunks.push(chunk);
    else end(() => reject(tooLong()));
  };
  const onEnd = () => end(() => resolve(Buffer.concat(chunks, size)));
  const onCut = () => end(() => reject(cutShort()));
  const end = (settle: () => void) => {
    incoming.off("data", onData).off("end", onEnd).off("close", onCut);
    settle();
  };
  // The error stays handled: a connection can break after the body is judged.
  incoming.on("data", onData).on("end", onEnd).on("close", onCut).on("error", onCut);
  return promise;
}

/** @throws ApiError invalid_body, saying what is wrong and where. */
export function parseBody<Schema extends z.ZodType>(bytes: Buffer, schema: Schema): z.output<Schema> {
  let document: unknown;
  try {
    const text = utf8.decode(bytes);
    document = /^[ \t\r\n]*$/.test(text) ? {} : parseExact(text);
  } catch {
    throw new ApiError("invalid_body", "The body must be one JSON object in UTF-8.");
  }
  const result = schema.safeParse(document);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  const where = issue === undefined || issue.path.length === 0 ? "" : `${issue.path.join(".")}: `;
  const problem = `${where}${issue?.message ?? "it is not valid"}`;
  throw new ApiError("invalid_body", `The body cannot be used: ${clipped(problem)}.`);
}

function clipped(text: string): string {
  return text.length > MAX_MESSAGE_LENGTH ? `${text.slice(0, MAX_MESSAGE_LENGTH)}…` : text;
}

function tooLong(): ApiError {
  return new ApiError("invalid_body", `The body is larger than ${MAX_BODY_BYTES} bytes.`);
}

function cutShort(): ApiError {
  return new ApiError("invalid_body", "The body did not arrive whole.");
}
