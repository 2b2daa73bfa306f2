"""How every engine shows jobs to people, newest first; a part of the seam's specification."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from djqueue.jobs.encoding import Encoded
from djqueue.jobs.lists import JobFilter, Newest
from djqueue.jobs.records import Ack, NewJob
from djqueue.jobs.states import FINAL_STATES, LIVE_STATES, JobState

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
LIVE, FINISHED = JobFilter(states=LIVE_STATES), JobFilter(states=FINAL_STATES)


def insert(engine, count: int = 1, **fields) -> list[int]:
    return [job.id for job in engine.insert([NewJob("tests.task", **fields)] * count, now=NOW)]


def ids(newest: Newest) -> list[int]:
    return [job.id for job in newest.jobs]


def test_pages_go_from_the_newest_to_the_oldest_and_show_each_job_once(engine):
    stored = insert(engine, 7)

    pages, before = [], None
    while not pages or before is not None:
        page = engine.newest(LIVE, before=before, limit=3)
        # What is enqueued meanwhile does not move what is on later pages.
        insert(engine)
        pages.append(ids(page))
        before = page.before

    assert pages == [stored[:3:-1], stored[3:0:-1], stored[:1]]


def test_a_full_page_says_whether_there_are_older_ones(engine):
    stored = insert(engine, 3)

    assert engine.newest(LIVE, limit=3).before is None
    assert engine.newest(LIVE, limit=2).before == stored[1]
    assert engine.newest(LIVE, before=stored[0]) == Newest([], None)


def test_a_search_that_finds_little_comes_to_an_end(engine):
    [wanted] = insert(engine, queue="mail")
    insert(engine, 3000)

    found, page = [], engine.newest(JobFilter(queue="mail"), limit=10)
    while True:
        found += ids(page)
        if page.before is None:
            break
        page = engine.newest(JobFilter(queue="mail"), before=page.before, limit=10)

    assert found == [wanted]


def test_what_is_shown_is_what_a_look_at_the_job_shows(engine, worker, me):
    insert(
        engine, args="[1]", kwargs='{"a": "\u00e4"}', meta='{"b": 2}', priority=7, expires_at=NOW + timedelta(hours=1)
    )
    insert(engine, queue="later", scheduled_at=NOW + timedelta(hours=1))
    insert(engine, queue="ended")
    [claimed] = worker.fetch("ended", 1, me, now=NOW)
    worker.ack([Ack(claimed.id, claimed.claim, JobState.COMPLETED, result='{"done": true}')], now=NOW)
    insert(engine, queue="busy")
    worker.fetch("busy", 1, me, now=NOW)

    shown = [*engine.newest(LIVE).jobs, *engine.newest(FINISHED).jobs]

    assert [job.state for job in shown] == ["executing", "scheduled", "available", "completed"]
    assert shown == [engine.get(job.id) for job in shown]


def test_the_store_tells_the_time(engine):
    first, second = engine.now(), engine.now()

    assert first.tzinfo is not None
    assert first < second
    assert abs(first - datetime.now(UTC)) < timedelta(minutes=1)


def test_a_few_jobs_behind_many_others_are_found_at_once(engine, worker, me):
    [later] = insert(engine, queue="mail", scheduled_at=NOW + timedelta(hours=1))
    done = insert(engine, 3, queue="ended")
    worker.ack([Ack(job.id, job.claim, JobState.COMPLETED) for job in worker.fetch("ended", 3, me, now=NOW)], now=NOW)
    [ready] = insert(engine, queue="rare")
    last = engine.insert_many(NewJob("tests.task"), [Encoded("[]", "{}")] * 21_000).ids[-1]

    assert ids(engine.newest(JobFilter(states=(JobState.SCHEDULED,)))) == [later]
    assert ids(engine.newest(FINISHED, limit=2)) == done[:0:-1]
    assert ids(engine.newest(FINISHED, before=done[1])) == done[:1]
    assert ids(engine.newest(JobFilter(states=(JobState.AVAILABLE,), queue="rare"))) == [ready]
    assert engine.find(JobFilter(states=(JobState.AVAILABLE, *FINAL_STATES), queue="ended"), last=last) == done
    assert engine.find(FINISHED, after=done[0], last=done[1]) == done[1:2]
    assert engine.count(FINISHED).count == 3
