// GET /openapi.json, made from the routes' own schemas.
import { z } from "zod";
import { ERROR_STATUS } from "./errors.ts";
import type { Route } from "./route.ts";

/** OpenAPI 3.1 for these routes, as a plain document. */
export function openApi(routes: Route[], version: string): object {
  return {
    openapi: "3.1.0",
    info: {
      title: "taisce-notify",
      version,
      description: "Tells a project's HTTPS endpoints that its memory formed.",
      license: { name: "Apache-2.0", identifier: "Apache-2.0" },
    },
    components: {
      securitySchemes: {
        credential: { type: "http", scheme: "bearer" },
        signature: { type: "apiKey", in: "header", name: "Taisce-Signature" },
      },
      schemas: {
        Error: {
          type: "object",
          required: ["error"],
          properties: {
            error: {
              type: "object",
              required: ["code", "message"],
              properties: {
                code: { type: "string", enum: Object.keys(ERROR_STATUS) },
                message: { type: "string" },
              },
            },
          },
        },
        Readiness: {
          type: "object",
          required: ["ready", "database", "listener"],
          properties: {
            ready: { type: "boolean" },
            database: { enum: ["up", "down"] },
            listener: { enum: ["up", "down", "off"] },
          },
        },
      },
    },
    paths: {
      ...Object.fromEntries(
        routes.map((route) => [route.path, { [route.method.toLowerCase()]: operation(route) }]),
      ),
      ...OPEN_PATHS,
    },
  };
}

const json = (schema: object) => ({ content: { "application/json": { schema } } });

/** What anyone may ask; a process in the role `worker` answers the first three as well. */
const OPEN_PATHS = {
  "/health": open("health", "Whether the process is up", {
    200: { description: "It is", ...json({ type: "object" }) },
  }),
  "/ready": open("ready", "Whether the process can do its work", {
    200: { description: "It can", ...json({ $ref: "#/components/schemas/Readiness" }) },
    503: { description: "It cannot just now", ...json({ $ref: "#/components/schemas/Readiness" }) },
  }),
  "/metrics": open("metrics", "Metrics in the Prometheus text format", {
    200: { description: "The metrics", content: { "text/plain": { schema: { type: "string" } } } },
  }),
  "/openapi.json": open("openapi", "This document", {
    200: { description: "OpenAPI 3.1", ...json({ type: "object" }) },
  }),
};

function open(operationId: string, summary: string, responses: object): object {
  return { get: { operationId, summary, security: [], responses } };
}

function operation(route: Route): object {
  return {
    operationId: route.operation.replaceAll(".", "_"),
    summary: route.summary,
    description: `Needs a ${route.access === "read-write" ? "read-write" : "project"} credential.`,
    security: [{ credential: [] }, ...(route.signed === undefined ? [] : [{ signature: [] }])],
    ...(route.body === undefined
      ? {}
      : {
          requestBody: {
            // An empty body counts as {}.
            required: !route.body.safeParse({}).success,
            ...json(jsonSchema(route.body, "input")),
          },
        }),
    responses: {
      200: { description: "Done", ...json(jsonSchema(route.answer, "output")) },
      default: { description: "Refused or failed", ...json({ $ref: "#/components/schemas/Error" }) },
    },
  };
}

function jsonSchema(schema: z.ZodType, io: "input" | "output"): object {
  const { $schema: _, ...rest } = z.toJSONSchema(schema, {
    io,
    unrepresentable: "any",
    // An offset is read as number or BigInt, and is one 64-bit integer to its sender.
    override: ({ zodSchema, jsonSchema: out }) => {
      const override = (zodSchema as unknown as z.ZodType).meta?.()?.override;
      if (override === undefined) return;
      for (const key of Object.keys(out)) delete (out as Record<string, unknown>)[key];
      Object.assign(out, override);
    },
  });
  return rest;
}
