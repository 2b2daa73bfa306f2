"""What PostgreSQL keeps of signals, and how it reads flows with many parts."""

from __future__ import annotations

from datetime import timedelta

import pytest

from djqueue.engines.postgres import PostgresEngine
from djqueue.jobs.flows import SIGNAL_TASK, FlowJob, FlowKind, NewFlow
from djqueue.jobs.records import NewJob

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])


def test_who_signalled_is_kept(postgres: PostgresEngine) -> None:
    waits = FlowJob(NewJob(SIGNAL_TASK, delay=timedelta(hours=1), meta='{"flow": {"name": "approved"}}'), 0)
    [id] = postgres.insert_flow([NewFlow()], [waits]).job_ids

    assert postgres.signal(id, "1", by="ada")

    job = postgres.get(id)
    assert job is not None
    assert job.meta == {"flow": {"name": "approved"}, "signalled_by": "ada"}


def test_pages_over_many_parts_hold_each_job_once_and_in_order(postgres: PostgresEngine) -> None:
    [whole] = postgres.insert_flow([NewFlow(FlowKind.BATCH, is_open=True)], []).flow_ids
    ids: list[int] = []
    for size in (1, 5, 2, 7, 1, 1, 3):
        part = NewFlow(FlowKind.PART, whole_id=whole)
        ids += postgres.insert_flow([part], [FlowJob(NewJob("tests.task"), 0)] * size).job_ids
        postgres.insert([NewJob("tests.task")])  # a stranger among the ids

    for limit in (1, 3, 100):
        found: list[int] = []
        while page := postgres.flow_jobs(whole, after=found[-1] if found else 0, limit=limit):
            found += [member.id for member in page]
        assert found == ids

    flow = postgres.flow(whole)
    assert flow is not None
    assert flow.total == len(ids)
