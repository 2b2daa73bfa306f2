// BullMQ: one Worker with its concurrency, addBulk for batches. On Redis with connections as BullMQ makes them by itself; on
// PostgreSQL (its own backend for it) with a pool as large as the concurrency, up to 20.

import { createPostgresBackend, Queue, Worker } from "bullmq";

import { CLIENTS, main, run } from "./protocol.mjs";

const isOnPostgres = process.env.BENCH_VARIANT === "postgres";
const backend = isOnPostgres ? createPostgresBackend : undefined;
const retries = { attempts: 3 };
const optionsOf = (kind) => (kind === "flaky" ? retries : undefined);

function connect(size, more = {}) {
  if (isOnPostgres) return { connectionString: process.env.DATABASE_URL, max: Math.min(size, 20), ...more };
  const url = new URL(process.env.REDIS_URL);
  return { host: url.hostname, port: Number(url.port), maxRetriesPerRequest: null };
}

let queue;

async function open(more) {
  queue = new Queue("bench", { connection: connect(CLIENTS, more) }, backend);
  await queue.waitUntilReady();
}

await main({
  async setup() {
    if (!isOnPostgres) return;
    await open({ migrate: true });
    await queue.close();
  },
  open,
  close: () => queue.close(),
  add: (kind, i, due) => queue.add(kind, { i, due }, optionsOf(kind)),
  async addMany(kind, numbers) {
    if (numbers.length) await queue.addBulk(numbers.map((i) => ({ name: kind, data: { i, due: 0 }, opts: optionsOf(kind) })));
  },
  addAt: (kind, i, due) => queue.add(kind, { i, due }, { delay: Math.max(0, Math.round(due * 1000 - Date.now())) }),
  async work({ concurrency }) {
    const options = { connection: connect(Math.max(10, concurrency)), concurrency };
    const worker = new Worker("bench", (job) => run(job.name, job.data.i, job.data.due), options, backend);
    worker.on("error", (error) => console.error(error));
    return () => worker.close();
  },
});
