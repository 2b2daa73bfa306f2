from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.admin.models import DELETION, LogEntry
from django.contrib.messages import get_messages
from django.test import Client
from django.urls import resolve

from djqueue.admin import control
from djqueue.models import FinishedJob, Job, Queue
from tests.admin.conftest import Login, make_finished, make_job

JOBS, FINISHED, QUEUES = "/admin/djqueue/job/", "/admin/djqueue/finishedjob/", "/admin/djqueue/queue/"
VIEW = ("view_job", "view_finishedjob", "view_queue")
pytestmark = pytest.mark.django_db


@pytest.fixture
def operator(login: Login) -> Client:
    """Somebody who may do everything."""
    return login(*VIEW, "retry_job", "cancel_job", "discard_job", "delete_job", "delete_finishedjob", "pause_queue")


def post(client: Client, verb: str, *jobs: Any, url: str = JOBS, **values: Any) -> Any:
    ids = [getattr(job, "pk", job) for job in jobs]
    return client.post(url, {"action": f"{verb}_jobs", "index": "0", "_selected_action": ids, **values})


def confirm(client: Client, verb: str, *jobs: Any, **values: Any) -> Any:
    return post(client, verb, *jobs, confirmed="yes", **values)


def told(response: Any) -> list[str]:
    return [str(message) for message in get_messages(response.wsgi_request)]


def text(response: Any) -> str:
    html = response.content.decode()
    return " ".join(re.sub(r"<[^>]*>", " ", html[html.index('id="content"') :]).split())


class TestWhoMay:
    @pytest.mark.parametrize("verb", ["retry", "cancel", "discard", "delete"])
    @pytest.mark.parametrize("url", [JOBS, FINISHED])
    def test_b77_who_may_only_view_is_refused_and_sees_no_button(self, login: Login, verb: str, url: str) -> None:
        client, job, done = login(*VIEW), make_job(), make_finished()

        assert post(client, verb, job, done, url=url).status_code == 403
        assert confirm(client, verb, job, done, url=url).status_code == 403
        assert confirm(client, verb, 0, url=url, select_across="1").status_code == 403
        for page in (JOBS, FINISHED, f"{JOBS}{job.pk}/change/", f"{FINISHED}{done.pk}/change/"):
            html = client.get(page).content.decode()
            assert "_jobs" not in html
            assert "djq-buttons" not in html
        assert (Job.objects.get().state, FinishedJob.objects.get().state) == ("available", "completed")

    @pytest.mark.parametrize("verb", ["retry", "cancel", "discard", "delete"])
    def test_b77_each_verb_has_a_permission_of_its_own(self, login: Login, verb: str) -> None:
        client, job = login(*VIEW, f"{verb}_job"), make_job()

        for other in ("retry", "cancel", "discard", "delete"):
            assert post(client, other, job).status_code == (200 if other == verb else 403)

    def test_who_may_delete_live_jobs_may_not_delete_finished_ones(self, login: Login) -> None:
        client, done = login(*VIEW, "delete_job"), make_finished()

        assert post(client, "delete", done, url=FINISHED).status_code == 403
        response = confirm(client, "delete", done)

        assert FinishedJob.objects.exists()
        assert told(response) == [f"1 job was skipped (#{done.pk}): already completed."]

    def test_who_may_not_view_may_do_nothing(self, login: Login) -> None:
        job = make_job()

        assert confirm(login("cancel_job"), "cancel", job).status_code == 403
        assert Job.objects.exists()

    def test_without_a_token_nothing_is_done(self, operator: Client) -> None:
        job = make_job()
        client = Client(enforce_csrf_checks=True)
        client.cookies = operator.cookies

        assert confirm(client, "delete", job).status_code == 403
        assert client.post(QUEUES, {"act": "pause", "queue": "q", "confirmed": "yes"}).status_code == 403
        assert Job.objects.exists()

    def test_a_get_does_nothing(self, operator: Client) -> None:
        job = make_job()

        operator.get(JOBS, {"action": "delete_jobs", "_selected_action": job.pk, "index": 0, "confirmed": "yes"})
        operator.get(QUEUES, {"act": "pause", "queue": "q", "confirmed": "yes"})

        assert Job.objects.exists()
        assert not Queue.objects.exists()


class TestAsking:
    def test_it_asks_first_and_says_what_will_happen(self, operator: Client) -> None:
        jobs = [make_job(), make_job(state="scheduled"), make_job(state="executing"), make_finished(), 999_999]

        said = text(post(operator, "cancel", *jobs))

        assert "1 executing will be asked to end, and will not run again" in said
        assert "1 available will end at once" in said
        assert "1 completed will be left unchanged" in said
        assert "1 job no longer exists." in said
        assert Job.objects.count() == 3

    def test_with_nothing_to_do_there_is_no_button(self, operator: Client) -> None:
        response = post(operator, "discard", make_job(state="executing"))

        assert "There is nothing to do." in text(response)
        assert b"Yes, discard" not in response.content

    def test_all_that_match_are_counted(self, operator: Client) -> None:
        for _ in range(3):
            make_job(queue="mail")
        make_job()

        response = post(operator, "discard", 0, url=f"{JOBS}?queue=mail", select_across="1")

        assert "3 available will end at once as discarded" in text(response)
        assert 'name="select_across" value="1"' in response.content.decode()

    def test_what_strangers_sent_is_escaped(self, operator: Client) -> None:
        job = make_job(task="<script>alert(1)</script>", queue="<b>")

        html = post(operator, "delete", job).content.decode()

        assert "<script>alert(1)" not in html
        assert "&lt;script&gt;alert(1)" in html

    def test_more_than_a_page_names_is_cut(self, operator: Client) -> None:
        jobs = [make_job() for _ in range(25)]

        assert "… and 5 more" in text(post(operator, "delete", *jobs))


class TestDoing:
    def test_a_job_is_cancelled_with_who_and_why(self, operator: Client) -> None:
        job = make_job()

        response = confirm(operator, "cancel", job, reason="Not needed.", from_page="1")

        done = FinishedJob.objects.get()
        assert done.state == "cancelled"
        user = response.wsgi_request.user
        assert (done.cancel_request["by"], done.cancel_request["reason"]) == (user.username, "Not needed.")
        assert told(response) == ["1 job was cancelled."]
        assert response["Location"] == f"{JOBS}{job.pk}/change/"

    def test_what_was_skipped_is_named_with_its_reason(self, operator: Client) -> None:
        waiting, running, done = make_job(), make_job(state="executing"), make_finished()

        response = confirm(operator, "discard", waiting, running, done)

        assert told(response) == [
            "1 job was discarded.",
            f"1 job was skipped (#{running.pk}): executing.",
            f"1 job was skipped (#{done.pk}): already completed.",
        ]

    def test_a_job_that_finished_meanwhile_is_still_found(self, operator: Client) -> None:
        done = make_finished(state="discarded")

        response = confirm(operator, "retry", done, url=JOBS)

        assert told(response) == ["1 job is available again."]
        assert Job.objects.get().pk == done.pk

    def test_a_deleted_job_leads_back_to_the_list(self, operator: Client) -> None:
        response = confirm(operator, "delete", make_job(), from_page="1")

        assert response["Location"] == JOBS
        assert LogEntry.objects.get().action_flag == DELETION

    def test_all_that_match_and_no_others(self, operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(control, "BATCH", 2)
        for _ in range(5):
            make_finished(queue="mail", state="discarded")
        other = make_finished(queue="mail", state="completed")
        another = make_finished(state="discarded")

        url = f"{FINISHED}?queue=mail&state=discarded"
        response = confirm(operator, "retry", 0, url=url, select_across="1")

        assert told(response) == ["5 jobs are available again."]
        assert response["Location"] == url
        assert set(FinishedJob.objects.values_list("pk", flat=True)) == {other.pk, another.pk}

    def test_what_takes_too_long_is_cut_and_says_so(self, operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(control, "BATCH", 2)
        monkeypatch.setattr(control, "SECONDS", 0)
        jobs = [make_job() for _ in range(5)]

        response = confirm(operator, "delete", *jobs)

        assert told(response)[0] == "2 jobs were deleted."
        assert "Repeat the action to continue with the other jobs." in told(response)[1]
        assert Job.objects.count() == 3

    def test_nothing_is_left_to_do(self, operator: Client) -> None:
        response = confirm(operator, "delete", 0, url=f"{JOBS}?queue=none", select_across="1")

        assert response.status_code == 302

    @pytest.mark.parametrize("id", ["x", "-1", "1e3", "9" * 30, "1; DROP TABLE"])
    def test_what_is_no_id_is_refused(self, operator: Client, id: str) -> None:
        make_job()

        assert confirm(operator, "delete", id).status_code == 400
        assert Job.objects.count() == 1

    def test_the_list_can_be_changed_outside_of_the_requests_transaction(self) -> None:
        """ATOMIC_REQUESTS would make one transaction of all batches."""
        for url in (JOBS, FINISHED):
            assert "default" in resolve(url).func._non_atomic_requests  # type: ignore[attr-defined]


class TestLog:
    def test_each_job_gets_an_entry_that_its_history_shows_in_either_table(self, operator: Client) -> None:
        job = make_job()
        confirm(operator, "cancel", job, reason="Not needed.")
        confirm(operator, "retry", job, url=FINISHED)
        confirm(operator, "discard", job, reason="Bad.")

        said = text(operator.get(f"{FINISHED}{job.pk}/history/"))

        assert re.search(r"Cancelled\. Not needed\. .* Retried\. .* Discarded\. Bad\.", said)
        assert [entry.object_id for entry in LogEntry.objects.all()] == [str(job.pk)] * 3

    def test_thousands_share_one(self, operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(control, "MOST_LOGGED", 3)
        jobs = [make_job() for _ in range(4)]

        confirm(operator, "delete", *jobs)

        entry = LogEntry.objects.get()
        assert entry.object_repr == f"4 jobs, #{jobs[0].pk} to #{jobs[-1].pk}"
        assert entry.change_message == "4: Deleted."

    def test_what_was_skipped_is_not_logged(self, operator: Client) -> None:
        confirm(operator, "discard", make_job(state="executing"))

        assert not LogEntry.objects.exists()


class TestButtons:
    @pytest.mark.parametrize(
        ("state", "labels"),
        [
            ("available", ["Cancel", "Discard", "Delete"]),
            ("scheduled", ["Retry", "Cancel", "Discard", "Delete"]),
            ("executing", ["Cancel"]),
            ("completed", ["Retry", "Delete"]),
            ("discarded", ["Retry", "Delete"]),
        ],
    )
    def test_a_page_offers_what_can_be_done(self, operator: Client, state: str, labels: list[str]) -> None:
        is_live = state in ("available", "scheduled", "executing")
        job = (make_job if is_live else make_finished)(state=state)

        html = operator.get(f"{JOBS}{job.pk}/change/", follow=True).content.decode()

        assert re.findall(r'<button type="submit" name="action"[^>]*>(\w+)…</button>', html) == labels

    def test_a_page_says_that_somebody_asked_a_job_to_end(self, operator: Client) -> None:
        job = make_job(state="executing")
        confirm(operator, "cancel", job, reason="Not needed.")

        assert "Cancellation was asked for by " in text(operator.get(f"{JOBS}{job.pk}/change/"))


class TestQueues:
    def test_a_queue_is_paused_after_a_question_and_resumed(self, operator: Client) -> None:
        make_job(queue="mail")
        make_job(queue="mail", state="executing")
        assert "Pause…" in text(operator.get(QUEUES))

        asked = text(operator.post(QUEUES, {"act": "pause", "queue": "mail"}))
        assert "1 job is waiting. Neither it nor new jobs will start until the queue is resumed." in asked
        assert "1 job is executing and will continue." in asked
        assert not Queue.objects.exists()

        values = {"act": "pause", "queue": "mail", "confirmed": "yes", "reason": "No paper."}
        assert told(operator.post(QUEUES, values)) == ["Queue mail is paused."]
        assert told(operator.post(QUEUES, values))[-1] == "Queue mail was paused already."
        queue = Queue.objects.get()
        assert (queue.paused_at is not None, queue.pause_reason) == (True, "No paper.")
        assert "Resume…" in text(operator.get(QUEUES))

        assert "Paused by " in text(operator.post(QUEUES, {"act": "resume", "queue": "mail"}))
        told_last = told(operator.post(QUEUES, {"act": "resume", "queue": "mail", "confirmed": "yes"}))[-1]
        assert told_last == "Queue mail is resumed."
        assert [entry.change_message for entry in LogEntry.objects.order_by("pk")] == ["Paused. No paper.", "Resumed."]

    @pytest.mark.parametrize("values", [{}, {"act": "drop"}, {"queue": "a b"}, {"queue": ""}])
    def test_what_makes_no_sense_is_refused(self, operator: Client, values: dict[str, str]) -> None:
        form = {"act": "pause", "queue": "q", "confirmed": "yes", **values} if values else {}

        assert operator.post(QUEUES, form).status_code == 403
        assert not Queue.objects.exists()

    def test_b77_who_may_only_view_cannot_pause(self, login: Login) -> None:
        client = login(*VIEW)
        Queue.objects.create(name="mail")

        for act in ("pause", "resume"):
            assert client.post(QUEUES, {"act": act, "queue": "mail", "confirmed": "yes"}).status_code == 403
        assert "Pause" not in text(client.get(QUEUES))
