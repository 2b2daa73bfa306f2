"""From a claimed row to a recorded outcome.

::

    supervisor process                       worker process (one per --processes)
    ┌──────────────────────────────┐  pipe   ┌────────────────────────────────────────────────────────┐
    │ Supervisor   starts, watches │────────▶│ Worker      obeys the supervisor, knows when it is done│
    │ Heart        beats for all   │  claim  │ Producer    engine.fetch ─▶ Lane ─▶ Executor ─▶ Acker  │
    │ Stager, Lifeline  (leader)   │◀─block──│             (slots, prefetch) threads + loop  engine.ack│
    └──────────────────────────────┘         └────────────────────────────────────────────────────────┘

Data travels one way: fetch → execute → ack. The supervisor runs no user code, so nothing a task does can starve a
beat. The claim block is memory that both processes map: which claims the worker holds, and which of them began.
When a worker dies, what began spends its attempt and what did not goes back as if nothing had happened. The block, not
the exit code, says whether a worker left in order: a task can end the process with any code. What a worker process hears,
hands on to its forks and does at its end is in ``process.py``.

Order of stopping: fetching first, then the jobs, then the acks, beats last: a worker that still runs jobs must not
look dead.

Known weak spots: a thread cannot be killed, so a job that never returns holds its slot until its process is replaced;
tasks that hold the GIL for long delay their neighbours in the same process.
"""
