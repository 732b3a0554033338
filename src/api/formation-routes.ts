// How far a project has formed, asked and reported over HTTP.
import { z } from "zod";
import type { Formation } from "../formation/formation.ts";
import { type Route, route } from "./route.ts";
import { countSchema, offsetAnswer, offsetSchema } from "./schemas.ts";

const freshnessAnswer = z.object({
  scope: z.string(),
  stored: offsetAnswer.nullable(),
  formed: offsetAnswer.nullable(),
  parked: countSchema,
});

export function formationRoutes(formation: Formation): Route[] {
  return [
    route({
      method: "GET",
      path: "/v1/freshness",
      operation: "formation.freshness",
      summary: "How far the project is stored and formed",
      access: "read-only",
      answer: freshnessAnswer,
      async handle({ principal }) {
        return { body: await formation.freshness(principal.project), magnitude: 1 };
      },
    }),
    route({
      method: "POST",
      path: "/v1/formation/advance",
      operation: "formation.advance",
      summary: "Moves the project's watermark forward, for a memory service that keeps its own log",
      access: "read-write",
      body: z
        .strictObject({
          formed_through: offsetSchema,
          stored_through: offsetSchema.optional(),
          parked_turns: countSchema.optional(),
        })
        .refine(
          ({ formed_through: formed, stored_through: stored }) => stored === undefined || stored >= formed,
          { path: ["stored_through"], message: "must not be below formed_through" },
        ),
      answer: freshnessAnswer,
      async handle({ principal, body }) {
        const moved = await formation.advance(principal.project, {
          formedThrough: body.formed_through,
          storedThrough: body.stored_through,
          parkedTurns: body.parked_turns,
        });
        return { body: await formation.freshness(principal.project), magnitude: moved ? 1 : 0 };
      },
    }),
  ];
}
