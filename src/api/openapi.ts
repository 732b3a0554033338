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
      securitySchemes: { credential: { type: "http", scheme: "bearer" } },
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
      },
    },
    paths: Object.fromEntries(
      routes.map((route) => [route.path, { [route.method.toLowerCase()]: operation(route) }]),
    ),
  };
}

function operation(route: Route): object {
  return {
    operationId: route.operation.replaceAll(".", "_"),
    summary: route.summary,
    description: `Needs a ${route.access === "read-write" ? "read-write" : "project"} credential.`,
    security: [{ credential: [] }],
    ...(route.body === undefined
      ? {}
      : { requestBody: { content: { "application/json": { schema: jsonSchema(route.body, "input") } } } }),
    responses: {
      200: {
        description: "Done",
        content: { "application/json": { schema: jsonSchema(route.answer, "output") } },
      },
      default: {
        description: "Refused or failed",
        content: { "application/json": { schema: { $ref: "#/components/schemas/Error" } } },
      },
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
