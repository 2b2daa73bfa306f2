// What all Node drivers share; protocol.py says the same for Python, and __init__.py explains it.

import { readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

export const CLIENTS = 10;
export const KINDS = ["noop", "io", "cpu", "late", "flaky", "warm"];
const IO_MILLISECONDS = 10;
const CPU_STEPS = 1000;
const WARM_UPS = 20;
const INTERVAL = 25;

const now = () => (performance.timeOrigin + performance.now()) / 1000;
const cpuSeconds = () => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
};

// ---------------------------------------------------------------------------------------------- the tally

const seen = new Uint8Array(Number(process.env.BENCH_JOBS ?? 0));
let late = [];
let distinct = 0, changes = 0, warm = 0, first = 0, cpu = 0, isReporting = false;

function write(name, content) {
  const path = join(process.env.BENCH_TALLY, name);
  writeFileSync(`${path}.new`, content);
  renameSync(`${path}.new`, path);
}

let written = "", dumped = "", dumpedAt = 0;

/** Write the marks out: the long part when nothing has changed since the last look, now and then, and at the end. */
function report(isLast) {
  const state = `${distinct} ${changes} ${warm}`, isQuiet = state === written;
  if (!isQuiet) {
    write(`${process.pid}.tally`, Buffer.from(new Float64Array([distinct, first, cpu, warm]).buffer));
    written = state;
  }
  if (state !== dumped && (isLast || isQuiet || performance.now() - dumpedAt > 1000)) {
    write(`${process.pid}.late`, Buffer.from(new Float64Array(late).buffer));
    write(`${process.pid}.seen`, seen);
    dumped = state;
    dumpedAt = performance.now();
  }
}

function startReporting() {
  isReporting = true;
  dumpedAt = performance.now();
  setInterval(report, INTERVAL, false).unref();
}

export function begin(kind, number, due) {
  if (!isReporting) startReporting();
  if (kind === "warm") {
    warm++;
    return;
  }
  if (!first) {
    first = now();
    cpu = cpuSeconds();
  }
  if (kind === "late") late.push(now() - due);
  if (seen[number]++ === 0) distinct++;
  if (kind === "flaky") {
    changes++;
    if (seen[number] < 3) throw new Error("again");
  }
}

export async function run(kind, number, due) {
  begin(kind, number, due);
  if (kind === "io") await sleep(IO_MILLISECONDS);
  else if (kind === "cpu") compute();
}

// The sum goes somewhere, or an engine may see that nobody wants it.
let computed = 0;

function compute() {
  for (let step = 0; step < CPU_STEPS; step++) computed += Math.sin(step) * Math.cos(step);
}

// ---------------------------------------------------------------------------------------------- the actions

/** `driver` has setup, open, close, add(kind, number, due), addMany(kind, numbers), addAt(kind, number, due), work(options); and
 * flush(), when its add() answers before the server has. */
export async function main(driver) {
  const [action, text] = process.argv.slice(2);
  const options = JSON.parse(text ?? "{}");
  let answer = {};
  if (action === "setup") await driver.setup();
  else if (action === "work") answer = await work(driver, options);
  else {
    await driver.open();
    answer = await { fill, add, produce, delay }[action](driver, options);
    await driver.close();
  }
  console.log(JSON.stringify(answer ?? {}));
  process.exit(0);
}

async function work(driver, options) {
  const asked = new Promise((resolve) => process.once("SIGTERM", resolve));
  const stop = await driver.work(options);
  const alive = setInterval(() => {}, 1000);
  await asked;
  clearInterval(alive);
  await Promise.race([stop?.(), sleep(5000)]);
  if (isReporting) report(true);
}

function* chunks(count, size) {
  for (let start = 0; start < count; start += size)
    yield Array.from({ length: Math.min(size, count - start) }, (_, i) => start + i);
}

async function fill(driver, { n, kind }) {
  for (const chunk of chunks(n, 1000)) await driver.addMany(kind, chunk);
}

async function add(driver, { how, n, kind, seconds, first: lowest = 0 }) {
  await driver.addMany(kind, []);
  const size = Number(how.split("bulk")[1] ?? 0);
  const source = size ? chunks(n, size) : null;
  const start = performance.now(), startCpu = cpuSeconds(), deadline = start + seconds * 1000;
  let next = 0, added = 0;
  const client = async () => {
    while (performance.now() < deadline) {
      if (!size) {
        if (next >= n) return;
        await driver.add(kind, lowest + next++, 0);
        added++;
      } else {
        const { value, done } = source.next();
        if (done) return;
        await driver.addMany(kind, value);
        added += value.length;
      }
    }
  };
  await Promise.all(Array.from({ length: how.startsWith("conc") ? CLIENTS : 1 }, client));
  await driver.flush?.();
  return { added, seconds: (performance.now() - start) / 1000, cpu: cpuSeconds() - startCpu };
}

async function delay(driver, { n, gap, ahead }) {
  const start = now() + ahead;
  let next = 0;
  const client = async () => {
    while (next < n) {
      const number = next++;
      await driver.addAt("late", number, start + number * gap);
    }
  };
  await Promise.all(Array.from({ length: CLIENTS }, client));
  return { ready: now() < start };
}

function warmUpsRun() {
  let sum = 0;
  for (const name of readdirSync(process.env.BENCH_TALLY))
    if (name.endsWith(".tally")) sum += readFileSync(join(process.env.BENCH_TALLY, name)).readDoubleLE(24);
  return sum;
}

async function produce(driver, { n, rate }) {
  const deadline = now() + 20;
  for (;;) {
    await Promise.all(Array.from({ length: CLIENTS }, () => driver.add("warm", 0, 0)));
    if (warmUpsRun() >= WARM_UPS) break;
    if (now() > deadline) throw new Error("the worker ran no warm-up within 20 s");
    await sleep(300);
  }
  await sleep(500);
  const startCpu = cpuSeconds(), start = now() + 0.1, sent = [];
  // As for the others, at most CLIENTS jobs are being sent at once; what waits for that is late already.
  let free = CLIENTS;
  const waiting = [];
  const send = async (number, due) => {
    if (free > 0) free--;
    else await new Promise((resolve) => waiting.push(resolve));
    try {
      await driver.add("late", number, due);
    } finally {
      const other = waiting.shift();
      if (other) other();
      else free++;
    }
  };
  for (let number = 0; number < n; number++) {
    const due = start + number / rate, wait = due - now();
    if (wait > 0) await sleep(wait * 1000);
    sent.push(send(number, due));
  }
  await Promise.all(sent);
  return { seconds: now() - start, cpu: cpuSeconds() - startCpu };
}
