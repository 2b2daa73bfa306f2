// BullMQ on Redis: one Worker with its concurrency, addBulk for batches. Connections as BullMQ makes them by itself.

import { Queue, Worker } from "bullmq";

import { main, run } from "./protocol.mjs";

const url = new URL(process.env.REDIS_URL);
const connection = { host: url.hostname, port: Number(url.port), maxRetriesPerRequest: null };
const retries = { attempts: 3 };
const optionsOf = (kind) => (kind === "flaky" ? retries : undefined);

let queue;

await main({
  async setup() {},
  async open() {
    queue = new Queue("bench", { connection });
    await queue.waitUntilReady();
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
