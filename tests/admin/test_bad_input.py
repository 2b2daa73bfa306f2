"""What strangers type into addresses and forms: an empty list or a form error, never a server error, never half a deed."""

from __future__ import annotations

from typing import Any
from unittest import mock
from urllib.parse import quote

import pytest
from django.contrib.admin.models import LogEntry
from django.db import DatabaseError
from django.test import Client

from djqueue import crontab
from djqueue.exceptions import EngineUnavailable
from djqueue.models import CronEntry, Queue
from tests.admin.conftest import Behind, Login, make_finished, make_job, make_worker, text, told
from tests.crontab import tasks

JOBS, FINISHED, QUEUES = "/admin/djqueue/job/", "/admin/djqueue/finishedjob/", "/admin/djqueue/queue/"
WORKERS, CRON = "/admin/djqueue/worker/", "/admin/djqueue/cronentry/"
VIEW = ("view_job", "view_finishedjob", "view_queue", "view_worker", "view_cronentry")
ALL = (*VIEW, "retry_job", "cancel_job", "discard_job", "delete_job", "delete_finishedjob", "pause_queue")
CRON_ALL = ("add_cronentry", "change_cronentry", "delete_cronentry", "pause_cronentry", "run_cronentry")
NUL, SURROGATE, HUGE = "a\0b", "a\ud800b", "9" * 400
VALUES = [
    "",
    NUL,
    "\N{REPLACEMENT CHARACTER}",
    "-1",
    "0",
    HUGE,
    "\x1b[31m",
    "'\"%_\\",
    "executing",
    "completed",
    "é" * 3000,
]
PARAMETERS = [
    "state",
    "queue",
    "task",
    "within",
    "q",
    "o",
    "p",
    "all",
    "e",
    "after",
    "before",
    "_changelist_filters",
    "x",
]


@pytest.fixture
def operator(login: Login) -> Client:
    """Somebody who may do everything."""
    return login(*ALL, *CRON_ALL)


def make_entry(name: str = "nightly", backend: str = "default") -> Any:
    return crontab.add(name, tasks.plain.module_path, "0 3 * * *", args=[1], backend=backend)


def send(client: Client, url: str, **values: Any) -> Any:
    """Post a form in an encoding that can carry half a character, as no browser but any program can."""
    body = "".join(
        f'--X\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in values.items()
    )
    with mock.patch("django.http.multipartparser.force_str", lambda data, *args, **kwargs: _decode(data)):
        return client.generic(
            "POST", url, (body + "--X--\r\n").encode("utf-8", "surrogatepass"), "multipart/form-data; boundary=X"
        )


def _decode(data: Any) -> str:
    return data if isinstance(data, str) else data.decode("utf-8", "surrogatepass")


@pytest.mark.django_db
class TestAddresses:
    @pytest.mark.parametrize("url", [JOBS, FINISHED, QUEUES, WORKERS, CRON])
    def test_t25_no_parameter_of_a_list_makes_a_server_error(self, operator: Client, url: str) -> None:
        make_job()
        make_finished()
        make_worker()
        make_entry()

        _try_all_parameters(operator, url)

    @pytest.mark.parametrize("url", [JOBS, FINISHED, QUEUES, WORKERS, CRON])
    def test_t25_nor_does_one_of_a_store_elsewhere(self, operator: Client, behind: Behind, url: str) -> None:
        behind.add()
        behind.finish()

        _try_all_parameters(operator, url, "&backend=other")

    @pytest.mark.parametrize("parameter", ["queue", "task", "q"])
    @pytest.mark.parametrize("url", [JOBS, FINISHED])
    def test_t25_a_list_of_what_no_row_can_hold_is_empty(self, operator: Client, url: str, parameter: str) -> None:
        make_job()
        make_finished()

        response = operator.get(f"{url}?{parameter}=default%00")

        assert response.status_code == 200
        if parameter != "q":
            assert response.context["cl"].result_list == []

    def test_t25_a_state_of_the_other_list_finds_nothing(self, operator: Client) -> None:
        make_job()
        make_finished()

        for url, state in ((FINISHED, "executing"), (FINISHED, "available"), (JOBS, "completed"), (JOBS, "nonsense")):
            response = operator.get(f"{url}?state={state}")
            assert (response.status_code, response.context["cl"].result_list) == (200, []), (url, state)

    @pytest.mark.parametrize("url", [JOBS, FINISHED, QUEUES, WORKERS, CRON])
    @pytest.mark.parametrize("page", ["change", "history", "delete", "act/pause"])
    def test_t25_no_key_of_a_page_makes_a_server_error(self, operator: Client, url: str, page: str) -> None:
        for key in ("_00", "%00", "a%00b", "-1", "0", HUGE, "%1B[31m", "..", "é", "other/1", "a/b/1", "_GG", "'"):
            for response in (
                operator.get(f"{url}{key}/{page}/"),
                operator.post(f"{url}{key}/{page}/", {"reason": NUL}),
            ):
                assert response.status_code in (200, 302, 400, 403, 404, 405), (key, response.content[:500])

    @pytest.mark.parametrize("key", ["x", NUL, "-1", HUGE, "other/1", "", " 1"])
    @pytest.mark.parametrize("verb", ["retry", "cancel", "discard", "delete"])
    def test_t25_a_bad_key_in_a_form_is_refused(self, operator: Client, key: str, verb: str) -> None:
        values = {"action": f"{verb}_jobs", "index": "0", "_selected_action": key, "confirmed": "yes"}

        assert operator.post(JOBS, values).status_code in (302, 400)


def _try_all_parameters(client: Client, url: str, more: str = "") -> None:
    for name in PARAMETERS:
        for value in VALUES:
            response = client.get(f"{url}?{name}={quote(value)}{more}", follow=True)
            assert response.status_code in (200, 400), (name, value, response.content[:500])


@pytest.mark.django_db
class TestReasons:
    @pytest.mark.parametrize("bad", [NUL, SURROGATE, "x" * 501])
    @pytest.mark.parametrize("verb", ["cancel", "discard"])
    def test_t70_a_job_with_a_bad_reason_is_left_alone(self, operator: Client, verb: str, bad: str) -> None:
        job = make_job()

        response = send(
            operator, JOBS, action=f"{verb}_jobs", index="0", _selected_action=job.pk, confirmed="yes", reason=bad
        )

        assert response.status_code == 200
        assert response.context["reason"].errors
        assert 'role="alert"' in response.content.decode()
        job.refresh_from_db()
        assert (job.state, LogEntry.objects.count()) == ("available", 0)

    @pytest.mark.parametrize("bad", [NUL, SURROGATE])
    def test_t70_a_queue_with_a_bad_reason_goes_on(self, operator: Client, bad: str) -> None:
        response = send(operator, QUEUES, act="pause", queue="mail", confirmed="yes", reason=bad)

        assert response.status_code == 200
        assert 'role="alert"' in response.content.decode()
        assert (Queue.objects.count(), LogEntry.objects.count()) == (0, 0)

    @pytest.mark.parametrize("bad", [NUL, SURROGATE])
    def test_t70_an_entry_with_a_bad_reason_goes_on(self, operator: Client, bad: str) -> None:
        entry = make_entry()

        response = send(operator, f"{CRON}{entry.id}/act/pause/", reason=bad)

        assert response.status_code == 302
        assert "reason" in told(response)[0].lower()
        assert CronEntry.objects.get().paused_at is None
        assert not LogEntry.objects.exists()

    @pytest.mark.parametrize("bad", [NUL, SURROGATE])
    def test_t70_a_reason_of_a_store_elsewhere_is_refused_too(self, operator: Client, behind: Behind, bad: str) -> None:
        id = behind.add()
        values = {"action": "cancel_jobs", "index": "0", "_selected_action": f"other/{id}", "confirmed": "yes"}

        assert send(operator, f"{JOBS}?backend=other", **values, reason=bad).status_code == 200
        assert (
            send(operator, f"{QUEUES}?backend=other", act="pause", queue="q", confirmed="yes", reason=bad).status_code
            == 200
        )

        job = behind.engine.get(id)
        assert job is not None
        assert (job.state.value, behind.engine.queues(), LogEntry.objects.count()) == ("available", [], 0)


class TestDeedAndEntry:
    """Nothing is done without a trace, whatever fails in between."""

    @pytest.mark.django_db(transaction=True)
    @pytest.mark.parametrize("verb", ["retry", "cancel", "discard", "delete"])
    def test_t70_what_cannot_be_noted_is_not_done(self, operator: Client, verb: str) -> None:
        job = make_job(state="scheduled")
        operator.raise_request_exception = False

        with mock.patch.object(LogEntry.objects, "bulk_create", side_effect=DatabaseError("disk full")):
            response = operator.post(
                JOBS, {"action": f"{verb}_jobs", "index": "0", "_selected_action": job.pk, "confirmed": "yes"}
            )

        assert response.status_code == 500
        job.refresh_from_db()
        assert job.state == "scheduled"

    @pytest.mark.django_db(transaction=True)
    def test_t70_a_pause_that_cannot_be_noted_is_not_done(self, operator: Client) -> None:
        entry = make_entry()
        operator.raise_request_exception = False

        with mock.patch.object(LogEntry.objects, "bulk_create", side_effect=DatabaseError("disk full")):
            queue = operator.post(QUEUES, {"act": "pause", "queue": "mail", "confirmed": "yes"})
            cron = operator.post(f"{CRON}{entry.id}/act/pause/", {"reason": "now"})

        assert (queue.status_code, cron.status_code) == (500, 500)
        assert (Queue.objects.count(), CronEntry.objects.get().paused_at) == (0, None)

    def test_t70_a_store_elsewhere_is_not_asked_before_the_log_has_an_entry(
        self, operator: Client, behind: Behind
    ) -> None:
        id = behind.add()
        operator.raise_request_exception = False
        values = {"action": "cancel_jobs", "index": "0", "_selected_action": f"other/{id}", "confirmed": "yes"}

        with mock.patch.object(LogEntry, "save", side_effect=DatabaseError("disk full")):
            jobs = operator.post(f"{JOBS}?backend=other", values)
            queue = operator.post(f"{QUEUES}?backend=other", {"act": "pause", "queue": "q", "confirmed": "yes"})

        assert (jobs.status_code, queue.status_code) == (500, 500)
        job = behind.engine.get(id)
        assert job is not None
        assert (job.state.value, behind.engine.queues()) == ("available", [])

    def test_t70_an_act_whose_answer_is_lost_leaves_a_trace(self, operator: Client, behind: Behind) -> None:
        id = behind.add()
        engine = type(behind.engine)
        real = engine.cancel

        def cancel(*args: Any, **kwargs: Any) -> Any:
            real(*args, **kwargs)
            raise EngineUnavailable("The server hung up.")

        with mock.patch.object(engine, "cancel", cancel):
            response = operator.post(
                f"{JOBS}?backend=other",
                {
                    "action": "cancel_jobs",
                    "index": "0",
                    "_selected_action": f"other/{id}",
                    "confirmed": "yes",
                    "reason": "why",
                },
            )

        assert response.status_code == 503
        entry = LogEntry.objects.get()
        assert "why" in entry.change_message
        assert "outcome unknown" in entry.change_message

    def test_t70_an_act_that_is_answered_leaves_only_its_own_entries(self, operator: Client, behind: Behind) -> None:
        ids = [behind.add(), behind.add()]

        operator.post(
            f"{JOBS}?backend=other",
            {
                "action": "cancel_jobs",
                "index": "0",
                "_selected_action": [f"other/{id}" for id in ids],
                "confirmed": "yes",
            },
        )

        assert sorted(LogEntry.objects.values_list("object_id", flat=True)) == sorted(f"other/{id}" for id in ids)
        assert "unknown" not in str(text(operator.get(f"{JOBS}other_2F{ids[0]}/history/", follow=True)))
