// bunqueue on Bun: its server on TCP, in memory or on SQLite; the client as it comes, on the BullMQ-like interface.

import { Queue, Worker } from "bunqueue/client";

import { main, run } from "./protocol.mjs";

const url = new URL(process.env.BUNQUEUE_URL);
const connection = { host: url.hostname, port: Number(url.port) };
const optionsOf = (kind) => (kind === "flaky" ? { attempts: 3, backoff: 0 } : {});

let queue;

await main({
  async setup() {},
  async open() {
    queue = new Queue("bench", { connection });
  },
  close: () => queue.close(),
  add: (kind, i, due) => queue.add(kind, { i, due }, optionsOf(kind)),
  async addMany(kind, numbers) {
    if (numbers.length) await queue.addBulk(numbers.map((i) => ({ name: kind, data: { i, due: 0 }, opts: optionsOf(kind) })));
  },
  addAt: (kind, i, due) => queue.add(kind, { i, due }, { delay: Math.max(0, due * 1000 - Date.now()) }),
  async work({ concurrency }) {
    const worker = new Worker("bench", (job) => run(job.name, job.data.i, job.data.due), { connection, concurrency });
    worker.on("error", (error) => console.error(error));
    return () => worker.close();
  },
});
