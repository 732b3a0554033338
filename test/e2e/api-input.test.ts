// What a client may send, and where to: invalid_body and invalid_destination, from outside, on a real
// service and a real PostgreSQL.
import { describe, expect, it } from "vitest";
import {
  ADVANCE,
  apiProject,
  apiService,
  DELIVERIES,
  DISABLE,
  FRESHNESS,
  LIST,
  once,
  POSTS,
  PUBLIC,
  REGISTER,
  UNKNOWN_ID,
} from "../support/api-project.ts";
import { exchange, refusal } from "../support/exchange.ts";

const service = once(() => apiService({ TAISCE_NOTIFY_DESTINATIONS: "93.184.216.34,10.0.0.7,localhost" }));

describe("invalid_body", () => {
  it("is whatever is not one JSON object of at most 1 MiB, on every route", async () => {
    const { test, url } = await service();
    const { token, audit } = await apiProject(test, url);
    const long = "x".repeat(1_048_577);
    const bodies: [string, NonNullable<Parameters<typeof exchange>[3]>["body"]][] = [
      ["broken JSON", "{"],
      ["two objects", "{}{}"],
      ["an array", "[]"],
      ["null", "null"],
      ["a string", '"{}"'],
      ["a number", "9007199254740993"],
      ["an unknown field", '{"extra":1}'],
      ["a prototype", '{"__proto__":{"url":"https://93.184.216.34/"}}'],
      ["bad UTF-8", new Uint8Array([0x7b, 0xc3, 0x28, 0x7d])],
      ["too long, by its length", long],
      ["too long, in chunks", new Blob([long]).stream()],
      ["too deep", `${'{"a":'.repeat(50_000)}1${"}".repeat(50_000)}`],
    ];
    for (const path of POSTS) {
      for (const [what, given] of bodies) {
        const body = given instanceof ReadableStream ? new Blob([long]).stream() : given;
        const message = refusal(
          await exchange(url, "POST", path, { token, ...(body === undefined ? {} : { body }) }),
          [400, "invalid_body"],
          `${path} ${what}`,
        );
        expect(message.length).toBeLessThan(400);
      }
    }
    // Of every route but the one that moves the watermark.
    expect(await audit()).toHaveLength(bodies.length * (POSTS.length - 1));
  });

  it("is a field of another type or range", async () => {
    const { test, url } = await service();
    const { token } = await apiProject(test, url);
    const cases: [string, string[]][] = [
      [
        REGISTER,
        [
          "{}",
          '{"url":1}',
          '{"url":null}',
          `{"url":"${PUBLIC}/","deliver":"never"}`,
          `{"url":"${PUBLIC}/","secret":"x"}`,
        ],
      ],
      [DISABLE, ["{}", '{"id":1}', '{"id":null}', '{"id":["x"]}', `{"id":"${UNKNOWN_ID}","url":"x"}`]],
      [
        DELIVERIES,
        [
          ...['"limit":0', '"limit":201', '"limit":"1"', '"limit":1.5', '"limit":null', '"limit":1e99'],
          ...[
            '"after":"x"',
            '"after":1',
            '"after":""',
            '"state":"done"',
            '"state":null',
            '"endpoint_id":1',
            '"limit":1,"offset":2',
          ],
        ].map((field) => `{${field}}`),
      ],
      [
        ADVANCE,
        [
          "{}",
          ...["-1", "1.5", '"1"', "null", "9223372036854775808", "9007199254740993.0", "1e19"].map(
            (number) => `{"formed_through":${number}}`,
          ),
          '{"formed_through":2,"stored_through":1}',
          '{"formed_through":9007199254740993,"stored_through":9007199254740992}',
          '{"formed_through":2,"stored_through":null}',
          '{"formed_through":2,"parked_turns":-1}',
          '{"formed_through":2,"parked_turns":2147483648}',
          '{"formed_through":2,"scope":"p2"}',
        ],
      ],
    ];
    for (const [path, bodies] of cases) {
      for (const body of bodies) {
        refusal(await exchange(url, "POST", path, { token, body }), [400, "invalid_body"], `${path} ${body}`);
      }
    }
    const { text } = await exchange(url, "GET", FRESHNESS, { token });
    expect(JSON.parse(text)).toMatchObject({ stored: null, formed: null, parked: 0 });
  });

  it("is not an empty body, which counts as {}", async () => {
    const { test, url } = await service();
    const { token } = await apiProject(test, url);
    for (const body of [undefined, "", " \r\n", "{}", new Blob([]).stream()]) {
      const options = body === undefined ? { token } : { token, body };
      expect(await exchange(url, "POST", LIST, options)).toMatchObject({
        status: 200,
        text: '{"endpoints":[]}',
      });
      refusal(await exchange(url, "POST", DISABLE, { token }), [400, "invalid_body"]);
    }
  });
});

describe("invalid_destination", () => {
  it("is one answer, whatever is wrong with the destination", async () => {
    const { test, url } = await service();
    const project = await apiProject(test, url);
    const { token } = project;
    const answers = new Set<string>();
    for (const destination of [
      "http://93.184.216.34/",
      "https://user:secret@93.184.216.34/",
      "https://unlisted.example/",
      "https://localhost/",
      "https://10.0.0.7/",
      "https://10.0.0.8/",
      "https://93.184.216.34:0/",
      "https://0x5db8d822/",
      `${PUBLIC}/${"a".repeat(2_048)}`,
      `${PUBLIC}/\u0000`,
      "ftp://93.184.216.34/",
      "//93.184.216.34/",
      "no URL at all",
      "",
    ]) {
      const answer = await exchange(url, "POST", REGISTER, {
        token,
        body: JSON.stringify({ url: destination }),
      });
      refusal(answer, [400, "invalid_destination"], destination);
      answers.add(answer.text);
    }
    expect(answers.size).toBe(1);
    expect(await project.audit()).toHaveLength(14);
    expect((await project.client.post(LIST)).body).toEqual({ endpoints: [] });
  });

  it("is a URL that is registered already, however it is spelt and however many ask at once", async () => {
    const { test, url } = await service();
    const { token, client } = await apiProject(test, url);
    const spellings = [`${PUBLIC}/a?b=1`, "HTTPS://93.184.216.34:443/x/../a?b=1#part", `${PUBLIC}/./a?b=1`];
    const answers = await Promise.all(
      spellings.map((spelling) =>
        exchange(url, "POST", REGISTER, { token, body: JSON.stringify({ url: spelling }) }),
      ),
    );
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409, 409]);
    for (const answer of answers) if (answer.status !== 200) refusal(answer, [409, "invalid_destination"]);
    const { endpoints } = (await client.post(LIST)).body;
    expect(endpoints.map((endpoint: { url: string }) => endpoint.url)).toEqual([`${PUBLIC}/a?b=1`]);
  });

  it("is the 101st live endpoint, however many ask at once", async () => {
    const { test, url } = await service();
    const project = await apiProject(test, url);
    const ids = await project.registerMany(98, (n) => `${PUBLIC}/${n}`);
    const register = (name: string) =>
      exchange(url, "POST", REGISTER, {
        token: project.token,
        body: JSON.stringify({ url: `${PUBLIC}/${name}` }),
      });
    const answers = await Promise.all(["a", "b", "c", "d", "e"].map(register));
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 200, 409, 409, 409]);
    for (const answer of answers) {
      if (answer.status !== 200) expect(refusal(answer, [409, "invalid_destination"])).toContain("100");
    }
    await project.client.post(DISABLE, { id: ids[0] });
    expect((await register("f")).status).toBe(200);
    refusal(await register("g"), [409, "invalid_destination"]);
  });
});
