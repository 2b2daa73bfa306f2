"""Outcomes of jobs that run at most once. The fetch removed them from the store, so their history is written from memory."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from djqueue.engines.redis.codec import LONGEST_DELAY_SECONDS, NUMBERS, micros
from djqueue.jobs.records import Ack


def taken_bytes(acks: Sequence[Ack]) -> int:
    """Return the approximate size of these outcomes in bytes, including their jobs."""
    return sum(
        [
            len(job.args)
            + len(job.kwargs)
            + len(job.errors)
            + len(job.meta)
            + len(ack.result or "")
            + len(ack.error or "")
            for ack in acks
            if (job := ack.taken) is not None
        ]
    )


def taken_columns(acks: Sequence[Ack], pack: Callable[[Any], bytes]) -> list[Any]:
    """Return these outcomes with their jobs, in the format of ``record.lua``."""
    now = time.monotonic()
    flat: list[Any] = []
    for ack in acks:
        job = ack.taken
        if job is None:
            continue
        errors = [json.dumps(error, ensure_ascii=False) for error in json.loads(job.errors)]
        if ack.error is not None:
            errors.append(ack.error)
        # The job gave up its unique key when it was taken, and gets it again if it is put back.
        key = None if ack.state.is_final else job.unique_key
        payload = (
            0 if key is None else 1, micros(job.inserted_at), job.scheduled_at and micros(job.scheduled_at),
            job.expires_at and micros(job.expires_at), job.queue, job.priority, job.max_attempts, key, job.task, job.meta,
            (job.args, job.kwargs),
        )  # fmt: skip
        flat += (
            str(job.id),
            pack(payload),
            NUMBERS[ack.state],
            job.attempt if ack.is_spent else job.attempt - 1,
            job.claim,
            str(job.attempted_by),
            micros(job.attempted_at),
            ack.started is not None and int((now - ack.started) * 1e6),
            max(0, int((now - ack.finished) * 1e6)) if ack.finished else 0,
            micros(job.ready_at),
            ack.result is not None and ack.result,
            errors,
            int(min(max(0.0, ack.delay), LONGEST_DELAY_SECONDS) * 1e6),
            ack.note is not None and ack.note,
            ack.error is not None,
        )
    return flat
