"""Break everything that a queue stands on, and prove from outside that no job was lost or run without a reason.

::

    python -m tests.chaos --seed 7 --minutes 3
    python -m tests.chaos --backend redis --seed 7 --minutes 3 --program /usr/bin/redis-server

- ``plan``: from the seed, what is done to whom and when. Pure.
- ``tasks``: jobs that write what they do into the ledger, by ``noting``.
- ``hostile``: jobs that attack the process that runs them (not with ``--plain``).
- ``ledger``: one append-only file per process, outside of the database; it survives kill -9.
- ``producers``: threads that enqueue, and note what was acknowledged.
- ``stores``: PostgreSQL and Redis, each broken in the ways in which it can break.
- ``fleet``: supervisors with their workers, and the server; does what the plan says and notes when.
- ``liveness``: whether what lives goes on.
- ``checker``: reads the notes of all and says what is wrong. Pure: its own test plants violations.

What the proof is worth: "acknowledged" means that the call to enqueue returned and its transaction committed, by the
word of the database (a job for Redis stands in the outbox then, or in Redis); a start is noted by the task itself as its
first act, so what a worker claims and never starts is not seen unless it stays claimed. A Redis whose power is cut forgets
its last seconds: what it took in that time may be lost, and is counted; everything else must be there. Times are of the
monotonic clock, which all processes of a machine share.
"""
