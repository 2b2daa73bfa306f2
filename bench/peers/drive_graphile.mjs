// Graphile Worker, plain or with the preset that its documentation calls batching: a local queue and batched
// completions. Its failed jobs wait at least e seconds, which cannot be changed.

import { Logger, makeWorkerUtils, run as runWorker, runMigrations } from "graphile-worker";

import { CLIENTS, KINDS, main, run } from "./protocol.mjs";

const connectionString = process.env.DATABASE_URL;
const logger = new Logger(() => (level, message) => level === "error" && console.error(message));
const isBatched = process.env.BENCH_VARIANT === "batch";
const specOf = (kind) => (kind === "flaky" ? { maxAttempts: 3 } : {});

let utils;

await main({
  setup: () => runMigrations({ connectionString, logger }),
  async open() {
    utils = await makeWorkerUtils({ connectionString, logger, maxPoolSize: CLIENTS });
  },
  close: () => utils.release(),
  add: (kind, i, due) => utils.addJob(kind, { i, due }, specOf(kind)),
  async addMany(kind, numbers) {
    if (numbers.length) await utils.addJobs(numbers.map((i) => ({ identifier: kind, payload: { i, due: 0 }, ...specOf(kind) })));
  },
  addAt: (kind, i, due) => utils.addJob(kind, { i, due }, { runAt: new Date(due * 1000) }),
  async work({ concurrency }) {
    const handle = (kind) => ({ i, due }) => run(kind, i, due);
    const batch = { localQueue: { size: Math.max(500, concurrency) }, completeJobBatchDelay: 0, failJobBatchDelay: 0 };
    const runner = await runWorker({
      preset: {
        worker: { connectionString, concurrentJobs: concurrency, maxPoolSize: Math.min(concurrency + 2, 20), logger, ...(isBatched && batch) },
      },
      noHandleSignals: true,
      parsedCronItems: [],
      taskList: Object.fromEntries(KINDS.map((kind) => [kind, handle(kind)])),
    });
    return () => runner.stop();
  },
});
