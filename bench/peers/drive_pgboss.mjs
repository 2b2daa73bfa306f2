// pg-boss with batches, fetching on while they come back full, and woken by notifications.

import { PgBoss } from "pg-boss";

import { CLIENTS, KINDS, main, run } from "./protocol.mjs";

const queueOf = (kind) => `bench-${kind}`;

let boss;

async function start(options) {
  boss = new PgBoss({ connectionString: process.env.DATABASE_URL, max: CLIENTS, schedule: false, ...options });
  boss.on("error", (error) => console.error(error));
  await boss.start();
}

await main({
  async setup() {
    await start({ supervise: false });
    for (const kind of KINDS) await boss.createQueue(queueOf(kind), { retryLimit: 2, retryDelay: 0, notify: true });
    await boss.stop({ graceful: false });
  },
  open: () => start({ supervise: false }),
  close: () => boss.stop({ graceful: false }),
  add: (kind, i, due) => boss.send(queueOf(kind), { i, due }),
  async addMany(kind, numbers) {
    if (numbers.length) await boss.insert(queueOf(kind), numbers.map((i) => ({ data: { i, due: 0 } })));
  },
  addAt: (kind, i, due) => boss.send(queueOf(kind), { i, due }, { startAfter: new Date(due * 1000) }),
  async work({ concurrency, kind }) {
    await start({ useListenNotify: true });
    // One fetcher with batches as large as the documentation's examples; each batch ends with its slowest job.
    const batchSize = Math.max(100, concurrency);
    const options = { batchSize, pollingIntervalSeconds: 0.5, notifyPollingIntervalSeconds: 0.5, burstWhenBatchFull: true, perJobResults: true };
    for (const each of [kind, "warm"]) {
      await boss.work(queueOf(each), options, (jobs) =>
        Promise.all(
          jobs.map(async ({ id, data }) => {
            try {
              await run(each, data.i, data.due);
              return { id, status: "completed" };
            } catch (error) {
              return { id, status: "failed", output: { message: String(error) } };
            }
          }),
        ),
      );
    }
    return () => boss.stop({ graceful: false });
  },
});
