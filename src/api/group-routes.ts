// POST /v1/groups/take: what was handed to a group, at once or as soon as there is something.
import { z } from "zod";
import { GROUP_NAME_PATTERN, type PermittedGroups } from "../ledger/group-name.ts";
import { type GroupReaders, TooManyWaiting } from "../ledger/group-readers.ts";
import { parseGroupCursor } from "../ledger/groups.ts";
import { parseDuration } from "../settings/duration.ts";
import { ApiError } from "./errors.ts";
import { type Route, route } from "./route.ts";
import { ledgerRowAnswer } from "./schemas.ts";

/** Shorter than the time after which load balancers usually cut a silent connection. */
const LONGEST_WAIT_MS = 60_000;

const handoffAnswer = ledgerRowAnswer.extend({ variables: z.unknown().optional() });

/** Whole seconds, or a duration as in the settings; in milliseconds. */
const waitSchema = z.union([z.int().min(0).max(60), z.string()]).transform((wait, context) => {
  const milliseconds = typeof wait === "number" ? wait * 1_000 : parseDuration(wait);
  if (milliseconds !== undefined && milliseconds <= LONGEST_WAIT_MS) return milliseconds;
  context.addIssue({ code: "custom", message: 'must be a duration such as "500ms" or "30s", at most "60s"' });
  return z.NEVER;
});

export interface GroupRoutesOptions {
  /** The groups that the operator lists. */
  permitted: PermittedGroups;
  readers: Pick<GroupReaders, "take">;
}

export function groupRoutes({ permitted, readers }: GroupRoutesOptions): Route[] {
  return [
    route({
      method: "POST",
      path: "/v1/groups/take",
      operation: "group.take",
      summary: "A group's handoffs after a cursor, oldest first; waits for one where there is none",
      access: "read-only",
      body: z
        .strictObject({
          group: z
            .string()
            .refine((name) => GROUP_NAME_PATTERN.test(name), `must match ${GROUP_NAME_PATTERN.source}`),
          after: z.string().optional(),
          limit: z.int().min(1).max(200).optional(),
          wait: waitSchema.optional(),
        })
        .refine(({ group, after }) => after === undefined || parseGroupCursor(group, after) !== undefined, {
          path: ["after"],
          message: "must be the `next` of an earlier answer for this group",
        }),
      answer: z.object({ handoffs: z.array(handoffAnswer), next: z.string() }),
      async handle({ principal: { project }, body, gone }) {
        const { group, after, limit = 50, wait: waitMs = 0 } = body;
        if (!permitted.permits(group)) throw unlisted();
        try {
          const page = await readers.take({ project, group }, { after, limit, waitMs, gone: gone() });
          return { body: page, magnitude: page.handoffs.length };
        } catch (error) {
          if (!(error instanceof TooManyWaiting)) throw error;
          throw new ApiError("rate_limited", "Too many readers of this project wait already; try again.", {
            headers: { "Retry-After": "1" },
          });
        }
      },
    }),
  ];
}

function unlisted(): ApiError {
  return new ApiError(
    "invalid_destination",
    "This group is not permitted; the operator lists groups in TAISCE_NOTIFY_DESTINATIONS.",
  );
}
