from __future__ import annotations

from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, transaction

from djqueue import api, compat
from djqueue.exceptions import DjqueueError
from djqueue.jobs.control import ControlOutcome
from djqueue.jobs.states import JobState
from djqueue.models import FinishedJob, Job
from djqueue.stores import store
from tests.app.tasks import add, send_mail

pytestmark = pytest.mark.django_db


class TestOneJob:
    def test_a_job_is_named_by_its_result_its_id_or_the_text_of_its_id(self) -> None:
        results = [add.enqueue(1) for _ in range(3)]

        for result, name in zip(results, (results[0], int(results[1].id), results[2].id), strict=True):
            assert api.cancel(name) == (int(result.id), ControlOutcome.CANCELLED, "", None)

    def test_who_asked_may_be_a_user(self) -> None:
        result = add.enqueue(1)

        api.cancel(result, by=User(username="anna"), reason="Wrong order.")

        job = api.get_job(result)
        assert job is not None
        assert job.cancel_request is not None
        assert (job.cancel_request["by"], job.cancel_request["reason"]) == ("anna", "Wrong order.")

    def test_a_result_can_be_cancelled_and_tells_why_it_failed(self) -> None:
        result = add.enqueue(1)

        assert result.cancel("Wrong order.", by="anna").is_done

        result.refresh()
        assert result.status == compat.TaskResultStatus.FAILED
        assert result.job.state == "cancelled"
        assert (result.errors[0].exception_class_path, result.errors[0].traceback) == (
            "djqueue.exceptions.Cancel",
            "Wrong order.",
        )
        # Nobody ever ran it.
        assert (result.attempts, result.worker_ids) == (0, [])

    def test_a_job_that_is_not_there_is_no_error(self) -> None:
        assert api.retry(12345).reason == "no such job"
        assert api.get_job(12345) is None

    @pytest.mark.parametrize("name", ["", "x", "1.5", "-1", "\u0661", True, None, 1.0, "9" * 30])
    def test_what_is_no_id_is_an_error(self, name: object) -> None:
        with pytest.raises((ValueError, TypeError)):
            api.cancel(name)  # type: ignore[call-overload]


class TestSeveralJobs:
    def test_several_are_answered_in_order(self) -> None:
        results = [add.enqueue(n) for n in range(3)]

        assert [one.id for one in api.discard(results)] == [int(result.id) for result in results]
        assert [one.outcome for one in api.retry(reversed(results))] == ["retried"] * 3
        assert api.cancel([]) == []

    def test_a_bad_id_among_them_leaves_all_as_they_were(self) -> None:
        result = add.enqueue(1)

        with pytest.raises(ValueError, match="Invalid job id 'x'"):
            api.delete([result, "x"])

        assert Job.objects.count() == 1


class TestFilter:
    def test_all_that_match_are_controlled_in_batches(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(api, "BATCH", 3)
        for n in range(10):
            add.enqueue(n)
        send_mail.enqueue("anna")

        report = api.cancel(api.JobFilter(task=add.module_path), by="anna")

        assert (report.outcomes, report.done, report.skipped) == ({"cancelled": 10}, 10, {})
        assert Job.objects.get().task == send_mail.module_path
        assert {job.cancel_request["by"] for job in FinishedJob.objects.all()} == {"anna"}

    def test_what_is_retried_is_not_met_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(api, "BATCH", 2)
        api.discard([add.enqueue(n) for n in range(5)])

        assert api.retry(api.JobFilter(states=(JobState.DISCARDED,))).outcomes == {"retried": 5}

    def test_jobs_that_come_meanwhile_do_not_keep_it_going(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(api, "BATCH", 1)
        for n in range(3):
            add.enqueue(n)
        engine = store().engine
        cancel = type(engine).cancel

        def cancel_and_enqueue(self, ids, **values):
            add.enqueue("another")
            return cancel(self, ids, **values)

        monkeypatch.setattr(type(engine), "cancel", cancel_and_enqueue)

        assert api.cancel(api.JobFilter(queue="default")).done == 3
        assert Job.objects.count() == 3

    def test_an_empty_list_of_states_is_refused_and_does_not_mean_all(self) -> None:
        with pytest.raises(ValueError, match=r"Invalid states \[\]: name at least one state"):
            api.JobFilter(states=[])

    def test_without_states_a_filter_means_those_that_can_be_controlled(self) -> None:
        waiting, running, done = (add.enqueue(n) for n in range(3))
        Job.objects.filter(pk=running.id).update(state="executing")
        api.cancel(done)

        assert api.count("cancel", api.JobFilter()).count == 2
        assert api.count("discard", api.JobFilter()).count == 1
        assert api.count("delete", api.JobFilter()).count == 2
        assert api.delete(api.JobFilter()).outcomes == {"deleted": 2}
        assert [job.pk for job in Job.objects.all()] == [int(running.id)]
        assert waiting.id != running.id

    def test_a_state_in_which_nothing_can_be_done_is_an_error(self) -> None:
        with pytest.raises(ValueError, match=r"Cannot discard executing jobs. Use discard for jobs that are "):
            api.discard(api.JobFilter(states=(JobState.EXECUTING,)))

    def test_only_older_ones(self) -> None:
        old, _young = add.enqueue(1), add.enqueue(2)
        with connection.cursor() as cursor:
            cursor.execute("UPDATE djqueue_job SET inserted_at = inserted_at - interval '2 h' WHERE id = %s", [old.id])

        api.discard(api.JobFilter(older_than=timedelta(hours=1)))

        assert [job.pk for job in FinishedJob.objects.all()] == [int(old.id)]

    def test_what_was_skipped_is_counted_by_reason_with_examples(self) -> None:
        report = api.Report()
        report.add(api.cancel([11, 12]))
        report.add([api.Controlled(n, ControlOutcome.SKIPPED, f"unique key held by job {n}", n) for n in range(9)])

        assert report.done == 0
        assert report.skipped == {"no such job": 2, "unique key held by a live job": 9}
        assert report.examples == {
            "no such job": [11, 12],
            "unique key held by a live job": [0, 1, 2, 3, 4],
        }


class TestQueues:
    def test_a_queue_is_paused_once_and_resumed_once(self) -> None:
        answers = [api.pause("mail"), api.pause("mail"), api.resume("mail"), api.resume("mail")]

        assert answers == [True, False, True, False]

    @pytest.mark.parametrize("name", ["", "a b", "x" * 129, "naïve", None, 5])
    def test_what_is_no_queue_name_is_an_error(self, name: object) -> None:
        with pytest.raises(ValueError, match="Invalid queue name"):
            api.pause(name)  # type: ignore[arg-type]


def test_the_verbs_join_the_callers_transaction() -> None:
    result = add.enqueue(1)

    with transaction.atomic():
        api.pause("mail")
        api.delete(result)
        transaction.set_rollback(True)

    assert api.get_job(result) is not None
    assert api.resume("mail") is False


def test_a_backend_of_somebody_else_is_named(settings) -> None:
    name = "django.tasks.backends.dummy.DummyBackend" if compat.FRAMEWORK == "django.tasks" else ""
    if not name:
        pytest.skip("only where Django has its own")
    settings.TASKS = {**settings.TASKS, "dummy": {"BACKEND": name}}

    with pytest.raises(DjqueueError, match=r"The backend 'dummy' in TASKS is DummyBackend, which keeps no jobs"):
        api.cancel(1, using="dummy")
    with pytest.raises(ImproperlyConfigured):
        api.cancel(1, using="nowhere")


@pytest.mark.django_db(transaction=True)
def test_every_verb_has_an_async_twin() -> None:
    result = add.enqueue(1)

    async def control() -> list[object]:
        return [
            (await api.adiscard(result)).outcome,
            (await api.aretry(result)).outcome,
            (await result.acancel("So.")).outcome,
            (await api.acancel(result)).outcome,
            (await api.adelete(result)).outcome,
            await api.aget_job(result),
            await api.apause("mail"),
            await api.aresume("mail"),
        ]

    assert async_to_sync(control)() == ["discarded", "retried", "cancelled", "skipped", "deleted", None, True, True]
