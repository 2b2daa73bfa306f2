// @imqueue/core: messages on Redis, with its guaranteed delivery (``safe``) or without. There is no concurrency to set, no bulk and
// no retry. send() does not wait for the server's answer, so adding ends when the server has answered to all of it.

import imq from "@imqueue/core";

import { main, run } from "./protocol.mjs";

const url = new URL(process.env.REDIS_URL);
const silent = { log() {}, info() {}, warn() {}, error: console.error };
const isSafe = process.env.BENCH_VARIANT === "safe";
const options = { host: url.hostname, port: Number(url.port), logger: silent, safeDelivery: isSafe, safeDeliveryTtl: 5000 };

let queue;

await main({
  async setup() {},
  async open() {
    queue = imq.default.create("producer", options, imq.IMQMode.PUBLISHER);
    await queue.start();
  },
  // Not destroy(): it deletes what waits in the queue of its name.
  close: () => queue.queueLength(),
  flush: () => queue.queueLength(),
  add: (kind, i, due) => queue.send("bench", { kind, i, due }),
  async addMany(kind, numbers) {
    for (const i of numbers) await queue.send("bench", { kind, i, due: 0 });
  },
  addAt: (kind, i, due) => queue.send("bench", { kind, i, due }, Math.max(1, Math.round(due * 1000 - Date.now()))),
  async work() {
    const worker = imq.default.create("bench", options);
    worker.on("message", ({ kind, i, due }) => run(kind, i, due));
    await worker.start();
    return () => worker.stop();
  },
});
