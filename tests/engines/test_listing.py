"""How every engine lists jobs, page by page, and counts them; a part of the contract of engines."""

from __future__ import annotations

import functools
import json
import operator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection

from djqueue.engines.listing import BEGINNING
from djqueue.engines.postgres import listing
from djqueue.engines.postgres.reading import ReadTooSlow
from djqueue.engines.protocol import Inspector
from djqueue.exceptions import InvalidPosition
from djqueue.jobs.encoding import Encoded
from djqueue.jobs.lists import JobFilter, JobPage, ListedJob, Tally
from djqueue.jobs.records import Ack, NewJob, WorkerInfo
from djqueue.jobs.states import FINAL_STATES, LIVE_STATES, JobState
from djqueue.models import FinishedJob, Job
from tests.roles import Roles

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
LIVE, FINISHED = JobFilter(states=LIVE_STATES), JobFilter(states=FINAL_STATES)
LONG = timedelta(seconds=30)


def insert(engine, count: int = 1, task: str = "tests.task", now: datetime = NOW, **fields: Any) -> list[int]:
    return [job.id for job in engine.insert([NewJob(task, **fields)] * count, now=now)]


def complete(worker, me, queue: str = "default", now: datetime = NOW, **fields: Any) -> int:
    """Run the next job of a queue."""
    [job] = worker.fetch(queue, 1, me, now=now)
    worker.ack([Ack(job.id, job.claim, **{"state": JobState.COMPLETED, **fields})], now=now)
    return job.id


def ids(page: JobPage) -> list[int]:
    return [job.id for job in page.jobs]


def pages_of(engine, jobs: JobFilter, limit: int) -> list[list[int]]:
    pages, after = [], ""
    while True:
        page = engine.page(jobs, after=after, limit=limit)
        pages.append(ids(page))
        if not (after := page.older):
            return pages


def test_a_role_has_at_most_fifteen_verbs():
    verbs = [name for name, value in vars(Inspector).items() if callable(value) and not name.startswith("_")]

    assert len(verbs) <= 15, verbs


class TestGetMany:
    def test_live_and_finished_jobs_come_in_the_order_of_their_ids(self, engine, worker, me):
        stored = insert(engine, 4)
        complete(worker, me)

        found = engine.get_many([stored[2], stored[0], stored[3]])

        assert [(job.id, job.state) for job in found] == [
            (stored[0], "completed"),
            (stored[2], "available"),
            (stored[3], "available"),
        ]

    def test_a_job_that_is_named_twice_is_returned_once(self, engine):
        [id] = insert(engine)

        assert [job.id for job in engine.get_many([id, id])] == [id]

    @pytest.mark.parametrize("wrong", [0, -1, 999, 2**31, 2**53, 2**63 - 1, 2**63, 2**64])
    def test_ids_without_a_job_are_left_out(self, engine, wrong):
        [id] = insert(engine)

        assert [job.id for job in engine.get_many([wrong, id])] == [id]
        assert engine.get_many([wrong]) == []

    def test_no_ids(self, engine):
        assert engine.get_many([]) == []

    def test_any_collection_will_do(self, engine):
        stored = insert(engine, 3)

        assert [job.id for job in engine.get_many(set(stored))] == stored
        assert [job.id for job in engine.get_many(dict.fromkeys(stored).keys())] == stored

    def test_arguments_and_errors_are_not_read(self, engine, worker, me):
        [live, failed] = insert(engine, 2, args='["secret"]', kwargs='{"a": 1}')
        complete(worker, me, state=JobState.DISCARDED, error='{"exception": "builtins.OSError", "message": "Full."}')

        assert [job[-4:] for job in engine.get_many([live, failed])] == [("", "", "", "")] * 2


class TestPage:
    def test_an_empty_store(self, engine):
        for jobs in (LIVE, FINISHED, JobFilter(queue="mail"), JobFilter()):
            page = engine.page(jobs)
            assert (page.jobs, page.newer, page.older, page.oldest) == ([], "", "", "")
            assert page.is_first
            assert not page.is_cut

    def test_pages_go_from_the_newest_to_the_oldest(self, engine):
        stored = insert(engine, 7)

        assert pages_of(engine, LIVE, 3) == [stored[:3:-1], stored[3:0:-1], stored[:1]]

    def test_a_full_page_says_whether_there_are_older_jobs(self, engine):
        stored = insert(engine, 3)

        assert engine.page(LIVE, limit=4).older == ""
        assert engine.page(LIVE, limit=3).older == ""
        page = engine.page(LIVE, limit=2)
        assert (ids(page), page.older != "", page.is_first) == (stored[:0:-1], True, True)
        last = engine.page(LIVE, after=page.older, limit=2)
        assert (ids(last), last.older, last.is_first) == (stored[:1], "", False)

    def test_jobs_that_come_and_go_leave_no_gaps_and_repeat_nothing(self, engine):
        stored = insert(engine, 20)
        gone = {stored[4], stored[13]}

        seen, after = [], ""
        while True:
            page = engine.page(LIVE, after=after, limit=4)
            seen += ids(page)
            if not (after := page.older):
                break
            insert(engine, 3)
            # One on the page, on which the next position rests, and one that is still to come.
            engine.delete([page.jobs[-1].id, *(gone - set(seen))][:2])
        assert len(seen) == len(set(seen))
        assert set(stored) - gone <= set(seen) <= set(stored)
        assert seen == sorted(seen, reverse=True)

    def test_jobs_that_finish_meanwhile_leave_no_gaps_in_the_list_of_finished_jobs(self, engine, worker, me):
        insert(engine, 12)
        done = [complete(worker, me, now=NOW + n * MINUTE) for n in range(8)]

        seen, after = [], ""
        while True:
            page = engine.page(FINISHED, after=after, limit=3)
            seen += ids(page)
            if not (after := page.older):
                break
            complete(worker, me, now=NOW + HOUR)

        assert seen == done[::-1]

    def test_finished_jobs_have_the_order_that_the_page_names(self, engine, worker, me):
        first, second = insert(engine, queue="a")[0], insert(engine, queue="b")[0]
        complete(worker, me, "b", now=NOW)
        complete(worker, me, "a", now=NOW + MINUTE)

        page = engine.page(FINISHED)

        assert ids(page) == {"id": [second, first], "finished_at": [first, second]}[page.sorted_by]

    def test_jobs_that_finished_at_the_same_time_are_each_shown_once(self, engine, worker, me):
        stored = insert(engine, 7)
        claimed = worker.fetch("default", 7, me, now=NOW)
        worker.ack([Ack(job.id, job.claim, JobState.COMPLETED) for job in claimed], now=NOW)

        assert functools.reduce(operator.iadd, pages_of(engine, FINISHED, 2), []) == stored[::-1]

    def test_only_live_jobs_unless_states_are_named(self, engine, worker, me):
        insert(engine, 2)
        complete(worker, me)

        assert [job.state for job in engine.page(JobFilter()).jobs] == ["available"]

    def test_live_and_finished_jobs_are_not_one_list(self, engine):
        with pytest.raises(ValueError, match="either live or finished"):
            engine.page(JobFilter(states=(JobState.AVAILABLE, JobState.COMPLETED)))

    def test_by_state(self, engine, worker, me):
        [later] = insert(engine, scheduled_at=NOW + HOUR)
        [busy] = insert(engine, queue="busy")
        worker.fetch("busy", 1, me, now=NOW)
        [failed, ready] = insert(engine, 2)
        complete(worker, me, state=JobState.DISCARDED, error="{}")

        for state, id in (("scheduled", later), ("executing", busy), ("available", ready), ("discarded", failed)):
            assert ids(engine.page(JobFilter(states=(JobState(state),)))) == [id]
        assert ids(engine.page(JobFilter(states=(JobState.EXECUTING, JobState.SCHEDULED)))) == [busy, later]
        assert ids(engine.page(JobFilter(states=(JobState.COMPLETED,)))) == []

    @pytest.mark.parametrize("state", [JobState.AVAILABLE, JobState.SCHEDULED, JobState.EXECUTING])
    def test_pages_of_one_state(self, engine, worker, me, state):
        stored = insert(engine, 5, **({"scheduled_at": NOW + HOUR} if state is JobState.SCHEDULED else {}))
        if state is JobState.EXECUTING:
            worker.fetch("default", 5, me, now=NOW)
        insert(engine, 2, queue="other")
        worker.fetch("other", 1, me, now=NOW)

        assert pages_of(engine, JobFilter(states=(state,), queue="default"), 2) == [
            stored[:2:-1],
            stored[2:0:-1],
            stored[:1],
        ]

    def test_by_queue_task_and_worker(self, engine, worker, me, register):
        [mail] = insert(engine, queue="mail")
        [task] = insert(engine, task="shop.tasks.send")
        insert(engine, queue="busy")
        [busy] = worker.fetch("busy", 1, me, now=NOW)

        assert ids(engine.page(JobFilter(queue="mail"))) == [mail]
        assert ids(engine.page(JobFilter(queue="Mail"))) == []
        assert ids(engine.page(JobFilter(task="shop.tasks.send"))) == [task]
        assert ids(engine.page(JobFilter(task="shop.tasks"))) == []
        assert ids(engine.page(JobFilter(task_prefix="shop."))) == [task]
        assert ids(engine.page(JobFilter(worker=me))) == [busy.id]
        assert ids(engine.page(JobFilter(worker=register()))) == []
        assert ids(engine.page(JobFilter(queue="mail", task="shop.tasks.send"))) == []

    @pytest.mark.parametrize(
        ("part", "found"),
        [
            ("tasks", ["shop.tasks.send", "shop.Tasks.100%"]),
            ("TASKS.S", ["shop.tasks.send"]),
            ("%", ["shop.Tasks.100%"]),
            ("_", ["a_b"]),
            ("s.send", ["shop.tasks.send"]),
            ("s?send", []),
            (".*", []),
            ("\\", ["back\\slash"]),
            ("\\s", ["back\\slash"]),
            ("\\%", []),
            ("[b]", ["a[b](c)+^$-"]),
            ("(c)+^$-", ["a[b](c)+^$-"]),
            ("(", ["a[b](c)+^$-"]),
            ("%d", []),
            ("%b", []),
            ("Änd", ["m.Ändern"]),
            ("straße", ["m.straße"]),
            ("", ["shop.tasks.send", "shop.Tasks.100%", "a_b", "back\\slash", "a[b](c)+^$-", "m.Ändern", "m.straße"]),
            ("x" * 1000, []),
        ],
    )
    def test_by_a_part_of_the_task(self, engine, part, found):
        tasks = ["shop.tasks.send", "shop.Tasks.100%", "a_b", "back\\slash", "a[b](c)+^$-", "m.Ändern", "m.straße"]
        engine.insert([NewJob(task) for task in tasks])

        jobs = JobFilter(task_part=part)

        assert [job.task for job in engine.page(jobs).jobs] == found[::-1]
        assert engine.count(jobs).count == len(found)
        assert len(engine.find(jobs, last=engine.count(jobs).last)) == len(found)
        assert len(engine.newest(jobs).jobs) == len(found)

    def test_by_age(self, engine, worker, me):
        now = engine.now()
        [old] = insert(engine, now=now - 2 * HOUR)
        [new] = insert(engine, now=now - MINUTE)

        assert ids(engine.page(JobFilter(older_than=HOUR))) == [old]
        assert ids(engine.page(JobFilter(newer_than=HOUR))) == [new]
        assert ids(engine.page(JobFilter(older_than=MINUTE / 2, newer_than=HOUR))) == [new]
        # The age of a finished job counts from its end.
        complete(worker, me, now=now - 3 * HOUR / 2)
        assert ids(engine.page(JobFilter(states=FINAL_STATES, older_than=HOUR))) == [old]
        assert ids(engine.page(JobFilter(states=FINAL_STATES, newer_than=7 * HOUR / 4))) == [old]
        assert ids(engine.page(JobFilter(states=FINAL_STATES, newer_than=HOUR))) == []

    def test_a_row_has_what_the_job_has(self, engine, worker, me):
        insert(engine, queue="mail", priority=7, args="[1, 2]", kwargs='{"a": "\u00e4"}', max_attempts=3)
        insert(engine, scheduled_at=NOW + HOUR)
        insert(engine, queue="ended")
        complete(worker, me, "ended", now=NOW + MINUTE)
        insert(engine, queue="busy")
        worker.fetch("busy", 1, me, now=NOW)

        rows = [*engine.page(LIVE).jobs, *engine.page(FINISHED).jobs]

        assert [row.state for row in rows] == ["executing", "scheduled", "available", "completed"]
        for row in rows:
            job = engine.get(row.id)
            common = [name for name in ListedJob._fields[:-4] if name != "state"]
            assert [getattr(row, name) for name in common] == [getattr(job, name) for name in common]
        assert (rows[2].args, rows[2].kwargs) == ("[1, 2]", '{"a": "\u00e4"}')
        assert rows[0].attempted_by == me

    def test_long_arguments_and_errors_are_cut(self, engine, worker, me):
        long = json.dumps(["\u00e4" * 5000])
        insert(engine, 2, args=long, kwargs=json.dumps({"a": "b" * 5000}))
        error = {"exception": "m." + "E" * 5000, "message": "x" * 5000}
        complete(worker, me, state=JobState.DISCARDED, error=json.dumps(error))

        [live], [failed] = engine.page(LIVE).jobs, engine.page(FINISHED).jobs

        for row in (live, failed):
            assert row.args == '["' + "\u00e4" * (BEGINNING - 2)
            assert row.kwargs == '{"a": "' + "b" * (BEGINNING - 7)
        assert (failed.exception, failed.message) == (
            error["exception"][:BEGINNING],
            "x" * BEGINNING,
        )
        assert (live.exception, live.message) == ("", "")

    def test_the_last_error_is_shown(self, engine, worker, me):
        insert(engine)
        for n in (1, 2):
            error = json.dumps({"exception": "builtins.OSError", "message": f"Number {n}."})
            complete(worker, me, now=NOW + n * HOUR, state=JobState.RETRYABLE, delay=0, error=error)

        [row] = engine.page(LIVE).jobs

        assert (row.exception, row.message) == ("builtins.OSError", "Number 2.")

    @pytest.mark.parametrize("jobs", [LIVE, FINISHED], ids=["live", "finished"])
    def test_what_is_no_position(self, engine, jobs):
        insert(engine)

        for position in (
            *(
                "x",
                "-",
                "_",
                "1_",
                "_1",
                "1.5",
                "\u00b2",
                "\0",
                "1\0",
                "9" * 30,
                "9" * 5000,
                "2030-01-01_1",
                "a_1",
                "1_2_3",
            ),
            *("2030-01-01T00:00:00+00:00_x", "2030-01-01T00:00:00+00:00", "\ud800", "1;DROP TABLE djqueue_job"),
        ):
            with pytest.raises(InvalidPosition, match="Invalid position "):
                engine.page(jobs, after=position)
            with pytest.raises(InvalidPosition, match="Invalid position "):
                engine.page(jobs, before=position)

    def test_a_position_of_the_other_list_is_no_position_or_another(self, engine, worker, me):
        insert(engine, 6)
        for n in range(3):
            complete(worker, me, now=NOW + n * MINUTE)
        live, finished = engine.page(LIVE, limit=1).older, engine.page(FINISHED, limit=1).older

        if engine.page(FINISHED).sorted_by == engine.page(LIVE).sorted_by:
            assert ids(engine.page(FINISHED, after=live))
            return
        for jobs, position in ((FINISHED, live), (LIVE, finished)):
            with pytest.raises(InvalidPosition):
                engine.page(jobs, after=position)

    def test_a_position_beyond_all_jobs(self, engine):
        stored = insert(engine, 2)

        assert ids(engine.page(LIVE, after=str(stored[0]))) == []
        assert ids(engine.page(LIVE, after=str(2**63 - 1))) == stored[::-1]
        assert ids(engine.page(LIVE, after="0")) == []


class TestPagesBack:
    """PostgreSQL only: on Redis no page offers a position to page back to."""

    def test_there_and_back(self, postgres):
        stored = insert(postgres, 7)
        first = postgres.page(LIVE, limit=3)
        second = postgres.page(LIVE, after=first.older, limit=3)
        third = postgres.page(LIVE, after=second.older, limit=3)

        back = postgres.page(LIVE, before=third.newer, limit=3)
        start = postgres.page(LIVE, before=back.newer, limit=3)

        assert (first.newer, third.older, third.oldest) == ("", "", "")
        assert ids(back) == ids(second) == stored[3:0:-1]
        assert ids(start) == stored[:3:-1]
        assert (start.newer, start.is_first) == ("", True)

    @pytest.mark.parametrize("jobs", [LIVE, FINISHED], ids=["live", "finished"])
    def test_the_last_page(self, postgres, worker_on_postgres, jobs):
        stored = insert(postgres, 7)
        if jobs is FINISHED:
            worker_on_postgres(7)
        first = postgres.page(jobs, limit=3)

        last = postgres.page(jobs, before=first.oldest, limit=3)

        assert ids(last) == stored[2::-1]
        assert last.newer
        assert not last.is_first

    def test_a_page_before_that_is_not_full_is_the_first_one_in_whole(self, postgres):
        stored = insert(postgres, 5)
        page = postgres.page(LIVE, before=str(stored[3]), limit=3)

        assert (ids(page), page.is_first, page.newer) == (stored[:1:-1], True, "")


@pytest.fixture
def worker_on_postgres(postgres):
    """Finish jobs, one a minute, in the order of their ids."""
    with Roles(postgres) as roles:
        me = uuid4()
        roles.register([WorkerInfo(id=me, name="t", hostname="h", pid=1, queues={"default": None}, concurrency=1)])
        yield lambda count: [complete(roles, me, now=NOW + n * MINUTE) for n in range(count)]


class TestLightRows:
    """PostgreSQL only: the server cuts long arguments, so a page of large jobs is a small answer."""

    def test_the_server_cuts(self, postgres, monkeypatch):
        insert(postgres, 3, args=json.dumps(["a" * 100_000]), kwargs=json.dumps({"b": "c" * 100_000}))
        answers: list[Any] = []
        read = listing.rows_of
        monkeypatch.setattr(listing, "rows_of", lambda cursor: answers.append(read(cursor)) or answers[-1])

        page = postgres.page(LIVE)
        postgres.get_many([job.id for job in page.jobs])

        texts = [value for rows in answers for row in rows for value in row if isinstance(value, str)]
        assert len(answers) == 3
        assert max(map(len, texts)) == BEGINNING

    def test_a_page_whose_arguments_take_too_long_does_without(self, postgres, monkeypatch):
        stored = insert(postgres, 2, args="[1]")
        run = listing._List.run

        def slow(self, text, limit):
            if limit == listing.BEGINNINGS_LIMIT:
                raise ReadTooSlow
            return run(self, text, limit)

        monkeypatch.setattr(listing._List, "run", slow)

        assert [(job.id, job.args) for job in postgres.page(LIVE).jobs] == [(id, "") for id in stored[::-1]]


class TestTally:
    def test_an_empty_store(self, engine):
        assert engine.tally(LIVE) == Tally(0)

    def test_live_jobs_by_queue_and_state(self, engine):
        insert(engine, 5)
        insert(engine, 2, queue="mail")
        insert(engine, 3, queue="mail", scheduled_at=NOW + HOUR)

        assert engine.tally(LIVE) == engine.tally(JobFilter()) == Tally(10)
        assert engine.tally(JobFilter(queue="mail")) == Tally(5)
        assert engine.tally(JobFilter(states=(JobState.SCHEDULED,))) == Tally(3)
        assert engine.tally(JobFilter(states=(JobState.AVAILABLE,), queue="mail")) == Tally(2)
        assert engine.tally(JobFilter(queue="none")) == Tally(0)

    @pytest.mark.parametrize(
        "jobs",
        [
            FINISHED,
            JobFilter(states=LIVE_STATES, task="tests.task"),
            JobFilter(states=LIVE_STATES, task_part="tests"),
            JobFilter(states=LIVE_STATES, task_prefix="tests"),
            JobFilter(states=LIVE_STATES, older_than=HOUR),
            JobFilter(states=LIVE_STATES, newer_than=HOUR),
        ],
    )
    def test_what_cannot_be_counted_quickly_is_not_guessed(self, engine, worker, me, jobs):
        now = engine.now()
        insert(engine, 3, now=now - MINUTE)
        insert(engine, 3, task="other.task", now=now - 3 * HOUR)
        complete(worker, me, now=now)

        assert engine.tally(jobs) in (None, Tally(engine.count(jobs).count))

    def test_more_than_the_bound_is_a_lower_bound_and_an_estimate(self, postgres, monkeypatch):
        monkeypatch.setattr(listing, "COUNT_EXACTLY", 10)
        insert(postgres, 11)
        exact = postgres.tally(LIVE)
        count = listing._count
        monkeypatch.setattr(listing, "_count", lambda listed, text: count(listed, text) if "LIMIT" in text else None)

        more = postgres.tally(LIVE)

        assert exact == Tally(11)
        assert (more.number, more.is_exact) == (10, False)
        assert more.estimate > 0

    def test_up_to_the_bound_is_exact(self, postgres, monkeypatch):
        monkeypatch.setattr(listing, "COUNT_EXACTLY", 10)
        insert(postgres, 10)

        assert postgres.tally(LIVE) == Tally(10)

    def test_a_count_that_takes_too_long_is_an_estimate(self, postgres, monkeypatch):
        insert(postgres, 3)
        monkeypatch.setattr(listing, "_count", lambda listed, text: None)

        tally = postgres.tally(LIVE)

        assert (tally.number, tally.is_exact) == (0, False)
        assert tally.estimate > 0


class TestCountStates:
    def test_an_empty_store(self, engine):
        assert engine.count_states(LIVE, limit=LONG) == engine.count_states(FINISHED, limit=LONG) == {}

    def test_jobs_of_a_filter(self, engine, worker, me):
        insert(engine, 3)
        insert(engine, 2, queue="mail", scheduled_at=NOW + HOUR)
        complete(worker, me)

        assert engine.count_states(LIVE, limit=LONG) == {"available": 2, "scheduled": 2}
        assert engine.count_states(JobFilter(), limit=LONG) == {"available": 2, "scheduled": 2}
        assert engine.count_states(JobFilter(queue="mail"), limit=LONG) == {"scheduled": 2}
        assert engine.count_states(FINISHED, limit=LONG) == {"completed": 1}

    def test_what_takes_too_long_is_not_counted(self, engine):
        engine.insert_many(NewJob("tests.task"), [Encoded("[]", "{}")] * 5000)

        assert engine.count_states(LIVE, limit=LONG) == {"available": 5000}
        assert engine.count_states(LIVE, limit=timedelta(milliseconds=1)) in (None, {"available": 5000})


class TestQuickCounts:
    def test_as_counts_or_nothing(self, engine):
        assert engine.quick_counts(limit=LONG) == []
        insert(engine, 3)
        insert(engine, 2, queue="mail", scheduled_at=NOW + HOUR)

        found = {count.queue: count.states for count in engine.quick_counts(limit=LONG)}

        assert found == {"default": {"available": 3}, "mail": {"scheduled": 2}}

    def test_what_takes_too_long_is_not_counted(self, postgres, monkeypatch):
        def slow(self):
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_sleep(5)")

        monkeypatch.setattr(type(postgres), "counts", slow)

        assert postgres.quick_counts(limit=timedelta(milliseconds=20)) is None


class TestQueueNames:
    def test_queues_with_jobs_to_run(self, engine, worker, me):
        assert engine.queue_names() == []
        insert(engine, queue="mail")
        insert(engine, queue="a-b")
        insert(engine, queue="ended")
        complete(worker, me, "ended")

        assert sorted(engine.queue_names()) == ["a-b", "mail"]


class TestSlowSearches:
    """PostgreSQL only: a search that reads the whole table is stopped, and the next page continues it."""

    @pytest.fixture
    def slow(self, postgres, monkeypatch):
        """Each search of the whole table is stopped; those of a window are not."""
        run = listing._List.run

        def stopped(self, text, limit):
            if limit == listing.READ_LIMIT and "task =" in text and "end_0" not in text and " OFFSET" not in text:
                raise ReadTooSlow
            return run(self, text, limit)

        monkeypatch.setattr(listing, "WINDOW", 5)
        monkeypatch.setattr(listing._List, "run", stopped)
        return postgres

    @pytest.mark.parametrize("jobs", [LIVE, FINISHED], ids=["live", "finished"])
    def test_every_window_is_searched_and_no_job_is_missed(self, slow, worker_on_postgres, jobs):
        stored = [
            job.id for job in slow.insert([NewJob("rare" if n % 4 == 0 else "tests.task") for n in range(18)], now=NOW)
        ]
        if jobs is FINISHED:
            worker_on_postgres(18)
        wanted = JobFilter(states=jobs.states, task="rare")

        pages, after = [], ""
        while True:
            page = slow.page(wanted, after=after, limit=10)
            pages.append((ids(page), page.is_cut))
            if not (after := page.older):
                break

        assert functools.reduce(operator.iadd, (found for found, _ in pages), []) == stored[::4][::-1]
        assert len(pages) > 2
        assert pages[0][1]


def test_rows_edited_by_hand_are_listed(postgres):
    """Times that Python does not know."""
    insert(postgres, 2)
    Job.objects.update(inserted_at=NOW)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE djqueue_job SET scheduled_at = 'infinity'")

    assert len(postgres.page(LIVE, limit=1).jobs) == 1
    assert not FinishedJob.objects.exists()
