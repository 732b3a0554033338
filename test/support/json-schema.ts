// As much of JSON Schema as the service's own OpenAPI document uses: an unknown keyword is a failure, so
// that nothing in the document goes unchecked.

export interface Schema {
  [keyword: string]: unknown;
}

const isInteger = (value: unknown): value is number | bigint =>
  typeof value === "bigint" || Number.isSafeInteger(value);

const FORMATS: Record<string, (value: unknown) => boolean> = {
  uuid: (value) => /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(String(value)),
  "date-time": (value) =>
    !Number.isNaN(Date.parse(String(value))) && new Date(String(value)).toISOString() === value,
  uri: (value) => URL.canParse(String(value)),
  int64: (value) => isInteger(value) && BigInt.asIntN(64, BigInt(value)) === BigInt(value),
};

const TYPES: Record<string, (value: unknown) => boolean> = {
  object: (value) => typeof value === "object" && value !== null && !Array.isArray(value),
  array: Array.isArray,
  string: (value) => typeof value === "string",
  integer: isInteger,
  boolean: (value) => typeof value === "boolean",
  null: (value) => value === null,
};

/** What is wrong with `value`, a place each; empty where it is as the schema says. */
export function schemaProblems(schema: Schema, value: unknown, at = "$"): string[] {
  const problems: string[] = [];
  const check = (ok: boolean | undefined, what: string) => {
    if (ok !== true) problems.push(`${at} ${what}`);
  };
  const members = TYPES.object?.(value) ? (value as Record<string, unknown>) : {};
  const properties = (schema.properties ?? {}) as Record<string, Schema>;
  for (const [keyword, wanted] of Object.entries(schema)) {
    switch (keyword) {
      case "type":
        check(TYPES[wanted as string]?.(value), `is no ${wanted}`);
        break;
      case "format":
        check(FORMATS[wanted as string]?.(value), `is no ${wanted}`);
        break;
      case "const":
        check(value === wanted, `is not ${wanted}`);
        break;
      case "enum":
        check((wanted as unknown[]).includes(value), `is none of ${wanted}`);
        break;
      case "minimum":
        check((value as number) >= (wanted as number), `is below ${wanted}`);
        break;
      case "maximum":
        check((value as number) <= (wanted as number), `is above ${wanted}`);
        break;
      case "minLength":
        check(String(value).length >= (wanted as number), `is shorter than ${wanted}`);
        break;
      case "maxLength":
        check(String(value).length <= (wanted as number), `is longer than ${wanted}`);
        break;
      case "anyOf":
        check(
          (wanted as Schema[]).some((one) => schemaProblems(one, value).length === 0),
          "is none of several",
        );
        break;
      case "items":
        for (const [n, item] of (value as unknown[]).entries()) {
          problems.push(...schemaProblems(wanted as Schema, item, `${at}[${n}]`));
        }
        break;
      case "required":
        for (const name of wanted as string[]) check(Object.hasOwn(members, name), `has no ${name}`);
        break;
      case "properties":
        for (const [name, member] of Object.entries(properties)) {
          if (Object.hasOwn(members, name))
            problems.push(...schemaProblems(member, members[name], `${at}.${name}`));
        }
        break;
      case "additionalProperties":
        check(wanted === false, "has a schema that is not strict");
        for (const name of Object.keys(members))
          check(Object.hasOwn(properties, name), `has an unknown ${name}`);
        break;
      default:
        problems.push(`${at} has a schema with an unknown keyword, ${keyword}`);
    }
  }
  return problems;
}
