"""Insert jobs with unique keys: one script reads which job holds each key, and stores the job or changes its holder.

The server runs nothing else meanwhile, so no result has to be checked afterwards. A hold beyond a job's life is stored with
the key.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from djqueue.engines.redis.client import Client
from djqueue.engines.redis.codec import MICROSECOND, STATES, clock, columns, job_bytes, moment
from djqueue.engines.redis.parts import parts
from djqueue.jobs.records import InsertedJob, NewJob, UniqueRule

CHUNK = 250
"""How many jobs one run of the script stores: a job with a key takes some commands of its own."""


def holders(client: Client, keys: Sequence[str], rule: UniqueRule, now: datetime | None) -> dict[str, InsertedJob]:
    """Return the jobs that hold these keys now, by key; free keys are left out. Nothing is stored."""
    found: dict[str, InsertedJob] = {}
    how = client.pack(rule_columns(rule))
    for first in range(0, len(keys), CHUNK):
        some = keys[first : first + CHUNK]
        for key, holder in zip(some, client.run("holders", clock(now), client.pack(list(some)), how), strict=True):
            if holder:
                id, state, inserted_at = holder
                found[key] = InsertedJob(int(id), STATES[state - 1], moment(inserted_at), True)
    return found


def insert_unique(
    client: Client, jobs: Sequence[NewJob], rule: UniqueRule, ids: Sequence[int] | None, now: datetime | None
) -> list[InsertedJob]:
    """Store jobs, or return the jobs that hold their keys."""
    pack = client.pack
    how = pack(rule_columns(rule))
    calls = [
        (clock(now), pack(columns(part, pack)), b"" if ids is None else pack(list(ids[first : first + len(part)])), how)
        for first, part in parts(jobs, job_bytes, limit=CHUNK)
    ]
    answer = []
    for flat in client.run_all("insert_unique", calls):
        rows = iter(flat)
        answer += [
            InsertedJob(int(id), STATES[state - 1], moment(inserted_at), bool(is_duplicate))
            for id, state, inserted_at, is_duplicate in zip(rows, rows, rows, rows, strict=True)
        ]
    return answer


def is_simple(rule: UniqueRule) -> bool:
    """Return whether the rule only requires that no live job hold the key."""
    return not (rule.window or rule.holds_completed or rule.follow_up)


def rule_columns(rule: UniqueRule) -> tuple[object, ...]:
    """Return a rule in the format of the scripts."""
    window = rule.window is not None and rule.window // MICROSECOND
    return window, rule.holds_completed, rule.replace, rule.reschedule, rule.follow_up
