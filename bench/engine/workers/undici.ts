// undici alone: as many requests as it is told, as fast as one process can send them.
import { config, ready, stopWith } from "./config.ts";
import { createPoster } from "./post.ts";

const poster = createPoster(config);
stopWith(() => poster.close());
ready();

let left = config.count ?? 0;
const send = poster.repeat("/e/0");
await Promise.all(
  Array.from({ length: config.concurrency }, async () => {
    while (left-- > 0) await send();
  }),
);
