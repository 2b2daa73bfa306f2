"""From a claimed row to a recorded outcome.

::

    supervisor process                       worker process (one per --processes)
    ┌──────────────────────────────┐  pipe   ┌────────────────────────────────────────────────────────┐
    │ Supervisor   starts, watches │────────▶│ Worker      follows the supervisor's commands          │
    │ Heartbeats   for all workers │  claim  │ Producer    engine.fetch ─▶ Lane ─▶ Executor ─▶ Acker  │
    │ Stager, Lifeline  (leader)   │◀─block──│                  slots, threads         engine.ack     │
    └──────────────────────────────┘         └────────────────────────────────────────────────────────┘

Data travels one way: fetch → execute → ack. A claimed job and its task travel as one ``Execution``. The lane decides
which one runs next and calls the executor, which calls the task; ``Lifecycle`` checks that it may start and turns what
happened into one outcome for the acker. None of them calls back.

The supervisor runs no user code, so a task cannot delay a heartbeat. The claim block is memory that both processes map:
which claims the worker holds, and which of them have started. When a worker dies, jobs that had started spend their
attempt and the others go back with it. The block, not the exit code, says whether a worker left in order: a task can end
the process with any code. How a worker process handles signals, forks and its end is in ``process.py``.

Order of stopping: fetching first, then the jobs, then the acks, and heartbeats last: a worker that still runs jobs must
not look dead.

Known weak spots: a thread cannot be killed, so a job that never returns holds its slot until its process is replaced;
tasks that hold the GIL for long delay their neighbours in the same process.
"""
