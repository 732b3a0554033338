// What moves the requests of a whole process moves none of these: a listener that stands as the proxy hears
// of no destination. Beside it, where a switch does move a plain client, that client is shown to have moved.

import http from "node:http";
import { describe, expect, it } from "vitest";
import { answering, authority, listenTcp, postAlone, receive, status } from "../harness.ts";

const ACCEPTED = { kind: "accepted", status: 204 };
const OK = status("204 No Content");

/** From 22.21 and 24.5 on. */
const NODE_CAN_USE_PROXIES = process.allowedNodeEnvironmentFlags.has("--use-env-proxy");
/** On Node 22 the undici that the sender imports takes the place of Node's own, proxy and all. */
const NODES_OWN_STAYS = Number.parseInt(process.versions.node, 10) >= 24;

const NAMES = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];
const LOWER = NAMES.map((name) => name.toLowerCase());
const BOTH = [...NAMES, ...LOWER];

const before = (script: string) => ["--import", `data:text/javascript,${encodeURIComponent(script)}`];
const AT_RUN_TIME = before(`
  import http from "node:http";
  http.setGlobalProxyFromEnv();
  // A plain client, which such a call moves whatever undici does.
  http.get("http://control.invalid/").on("error", () => {});
`);

interface Way {
  readonly names?: readonly string[];
  readonly env?: NodeJS.ProcessEnv;
  readonly execArgv?: string[];
  readonly asked?: object;
  /** Whether a plain client of the same process goes by the proxy. Default: no. */
  readonly moves?: boolean;
  /** Whether this Node has it. Default: yes. */
  readonly here?: boolean;
}

const NODES_OWN = { moves: NODES_OWN_STAYS, here: NODE_CAN_USE_PROXIES };
const NOT_FOR_OTHERS = { NO_PROXY: "other.test", no_proxy: "other.test" };

const ways: [how: string, report: string, way: Way][] = [
  ["variables in upper case", "undici EnvHttpProxyAgent", { names: NAMES }],
  ["variables in lower case", "undici EnvHttpProxyAgent", { names: LOWER }],
  ["variables, NO_PROXY for others", "undici EnvHttpProxyAgent", { env: NOT_FOR_OTHERS }],
  ["variables, NO_PROXY for all", "undici EnvHttpProxyAgent", { env: { NO_PROXY: "*", no_proxy: "*" } }],
  ["NODE_USE_ENV_PROXY", "nodejs/node #57165", { env: { NODE_USE_ENV_PROXY: "1" }, ...NODES_OWN }],
  [
    "NODE_USE_ENV_PROXY, NO_PROXY for others",
    "nodejs/node #57165",
    { env: { NODE_USE_ENV_PROXY: "1", ...NOT_FOR_OTHERS }, ...NODES_OWN },
  ],
  ["--use-env-proxy", "nodejs/node #59151", { execArgv: ["--use-env-proxy"], ...NODES_OWN }],
  [
    "--use-env-proxy in NODE_OPTIONS, variables in lower case",
    "nodejs/node #59151",
    { names: LOWER, env: { NODE_OPTIONS: "--use-env-proxy" }, ...NODES_OWN },
  ],
  ["EnvHttpProxyAgent as global dispatcher", "undici docs", { asked: { globalProxy: true }, moves: true }],
  [
    "EnvHttpProxyAgent as global dispatcher, NO_PROXY for others",
    "undici docs",
    { asked: { globalProxy: true }, env: NOT_FOR_OTHERS, moves: true },
  ],
  [
    "http.setGlobalProxyFromEnv()",
    "nodejs http docs",
    { execArgv: AT_RUN_TIME, moves: true, here: "setGlobalProxyFromEnv" in http },
  ],
];

describe("a proxy", () => {
  it.for(ways)("named by %s hears nothing (%s)", async ([, , way], { skip }) => {
    skip(way.here === false, "not in this Node");
    let heard = "";
    const proxy = await listenTcp((socket) => {
      socket.on("data", (chunk) => {
        heard += chunk.toString("latin1");
        socket.end("HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n");
      });
    });
    const receiver = await receive(answering(OK));
    const url = `http://127.0.0.1:${proxy.port}`;
    const variables = Object.fromEntries((way.names ?? BOTH).map((name) => [name, url]));
    const extraCa = (await authority()).certPem;
    const { outcome } = await postAlone(
      { port: receiver.port, extraCa, ...way.asked },
      { ...variables, ...way.env },
      way.execArgv,
    );
    expect(outcome).toEqual(ACCEPTED);
    expect(receiver.requests).toHaveLength(1);
    expect(heard).not.toContain("localhost");
    expect(heard.includes("control.invalid")).toBe(way.moves === true);
    if (!way.moves) expect(proxy.connections).toBe(0);
  });
});
