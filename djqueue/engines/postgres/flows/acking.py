"""Store outcomes of jobs of flows, and of jobs that others wait for."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import psycopg
from psycopg.rows import TupleRow

from djqueue.engines.postgres.columns import ack_columns, texts
from djqueue.engines.postgres.execution import run_on
from djqueue.engines.postgres.flows.effects import After, End, note_ends, release
from djqueue.engines.postgres.session import Session
from djqueue.exceptions import EngineRefused, EngineUnavailable
from djqueue.jobs.records import Ack

logger = logging.getLogger("djqueue.flow")

Statement = tuple[str, dict[str, Any]]


def flow_statement(acks: Sequence[Ack], now: datetime | None, *, as_events: bool) -> Statement:
    """Return the statement that stores final outcomes; ``as_events`` leaves their effect on other jobs to events."""
    columns = {**ack_columns(acks), "result": texts(ack.result for ack in acks), "now": now}
    return "ack_flow", {**columns, "as_events": as_events}


def run_and_release(
    session: Session, statements: Sequence[Statement], now: datetime | None
) -> tuple[list[list[Any]], After]:
    """Run the statements of an ack, of which the last one is ``ack_flow``, and release what waits for its jobs.

    If that fails, store the outcomes alone and leave the rest to events: a broken workflow may not keep outcomes from being
    stored.
    """
    is_releasing = False

    def work(connection: psycopg.Connection[TupleRow]) -> tuple[list[list[Any]], After]:
        nonlocal is_releasing
        is_releasing = False
        after = After()
        with connection.transaction(), connection.cursor() as cursor:
            execute = run_on(cursor)
            answers = [execute(name, params) for name, params in statements]
            is_releasing = True
            release(execute, [End(row[0], row[2]) for row in answers[-1] if row[3]], after, now)
            is_releasing = False
            after.counts += {id for row in answers[-1] for id in row[4] or ()}
        return answers, after

    try:
        return session.attempt(work)
    except (EngineUnavailable, EngineRefused, psycopg.Error) as error:
        if not is_releasing:
            raise
        logger.warning("Could not release the jobs that wait for jobs that have ended; the stager will: %s", error)
        name, params = statements[-1]
        answers = session.run_all([*statements[:-1], (name, {**params, "as_events": True})])
        after = After()
        note_ends(answers[-1], after)
        return answers, after
