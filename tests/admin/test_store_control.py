"""What people do to jobs and queues of a backend that the admin knows from its engine only."""

from __future__ import annotations

import re
from typing import Any
from unittest import mock

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from djqueue.admin import control
from djqueue.exceptions import EngineUnavailable
from djqueue.jobs.states import JobState
from tests.admin.conftest import Behind, Login, text, told

JOBS, FINISHED, QUEUES = "/admin/djqueue/job/", "/admin/djqueue/finishedjob/", "/admin/djqueue/queue/"
IN_OTHER = "?backend=other"
VIEW = ("view_job", "view_finishedjob", "view_queue")


@pytest.fixture
def operator(login: Login) -> Client:
    """Somebody who may do everything."""
    return login(*VIEW, "retry_job", "cancel_job", "discard_job", "delete_job", "delete_finishedjob", "pause_queue")


def post(client: Client, verb: str, *keys: Any, url: str = JOBS + IN_OTHER, **values: Any) -> Any:
    keys = tuple(key if isinstance(key, str) else f"other/{key}" for key in keys)
    return client.post(url, {"action": f"{verb}_jobs", "index": "0", "_selected_action": keys, **values})


def confirm(client: Client, verb: str, *keys: Any, **values: Any) -> Any:
    return post(client, verb, *keys, confirmed="yes", **values)


def state(behind: Behind, id: int) -> str | None:
    job = behind.engine.get(id)
    return None if job is None else job.state.value


class TestWhoMay:
    @pytest.mark.parametrize("verb", ["retry", "cancel", "discard", "delete"])
    def test_b77_who_may_only_view_is_refused_and_sees_no_button(self, login: Login, behind: Behind, verb: str) -> None:
        client, live, done = login(*VIEW), behind.add(), behind.finish()

        for url in (JOBS, FINISHED):
            assert post(client, verb, live, done, url=url + IN_OTHER).status_code == 403
            assert confirm(client, verb, live, done, url=url + IN_OTHER).status_code == 403
            assert confirm(client, verb, 0, url=url + IN_OTHER, select_across="1").status_code == 403
        for page in (JOBS + IN_OTHER, FINISHED + IN_OTHER, f"{JOBS}other_2F{live}/change/"):
            html = client.get(page).content.decode()
            assert "_jobs" not in html
            assert "djq-buttons" not in html
        assert (state(behind, live), state(behind, done)) == ("available", "completed")

    @pytest.mark.parametrize("verb", ["retry", "cancel", "discard", "delete"])
    def test_b77_each_verb_has_a_permission_of_its_own(self, login: Login, behind: Behind, verb: str) -> None:
        client, id = login(*VIEW, f"{verb}_job"), behind.add()

        for other in ("retry", "cancel", "discard", "delete"):
            assert post(client, other, id).status_code == (200 if other == verb else 403)

    def test_who_may_delete_live_jobs_may_not_delete_finished_ones(self, login: Login, behind: Behind) -> None:
        client, done = login(*VIEW, "delete_job"), behind.finish()

        response = confirm(client, "delete", done)

        assert told(response) == [f"1 job was skipped (#{done}): already completed."]
        assert state(behind, done) == "completed"

    def test_who_may_only_view_cannot_pause(self, login: Login, behind: Behind) -> None:
        client = login(*VIEW)

        for act in ("pause", "resume"):
            values = {"act": act, "queue": "mail", "confirmed": "yes"}
            assert client.post(QUEUES + IN_OTHER, values).status_code == 403


class TestJobs:
    def test_it_asks_first_and_says_what_will_happen(self, operator: Client, behind: Behind) -> None:
        executing = behind.add()
        behind.fetch()
        jobs = [executing, behind.add(), behind.finish(), 999_999]

        response = post(operator, "cancel", *jobs)
        said = text(response)

        assert "1 available will end at once" in said
        assert "1 executing will be asked to end, and will not run again" in said
        assert "1 completed will be left unchanged" in said
        assert "1 job no longer exists." in said
        assert f"#other/{executing} shop.tasks.send default" in said
        assert f'href="{JOBS}other_2F{executing}/change/"' in response.content.decode()
        assert state(behind, jobs[1]) == "available"

    def test_it_does_what_was_confirmed_tells_and_logs_it(self, operator: Client, behind: Behind) -> None:
        waiting, executing = behind.add(queue="mail"), behind.add()
        behind.fetch()
        done = behind.finish()

        response = confirm(operator, "cancel", waiting, executing, done, reason="Not needed.")

        assert response["Location"] == JOBS + IN_OTHER
        assert told(response) == [
            "1 job was cancelled.",
            "1 job executes and was asked to end.",
            f"1 job was skipped (#{done}): already completed.",
        ]
        assert [
            (entry.object_id, entry.object_repr, entry.change_message) for entry in LogEntry.objects.order_by("pk")
        ] == [
            (f"other/{waiting}", f"#other/{waiting}", "Cancelled. Not needed."),
            (f"other/{executing}", f"#other/{executing}", "Asked to end. Not needed."),
        ]
        job = behind.engine.get(executing)
        assert job is not None
        assert job.cancel_request is not None
        assert job.cancel_request["reason"] == "Not needed."

    @pytest.mark.parametrize(
        ("verb", "url", "outcome", "sentence"),
        [
            ("retry", FINISHED, "available", "1 job is available again."),
            ("discard", JOBS, "discarded", "1 job was discarded."),
            ("delete", JOBS, None, "1 job was deleted."),
            ("delete", FINISHED, None, "1 job was deleted."),
        ],
    )
    def test_each_verb_does_what_it_says(
        self, operator: Client, behind: Behind, verb: str, url: str, outcome: str | None, sentence: str
    ) -> None:
        id = behind.finish(JobState.DISCARDED) if url == FINISHED else behind.add()

        response = confirm(operator, verb, id, url=url + IN_OTHER)

        assert told(response) == [sentence]
        assert state(behind, id) == outcome

    def test_the_page_of_a_job_offers_what_can_be_done_and_comes_back(self, operator: Client, behind: Behind) -> None:
        id = behind.add()
        url = f"{JOBS}other_2F{id}/change/"
        html = operator.get(url).content.decode()

        assert re.findall(r'<button type="submit" name="action"[^>]*>(\w+)…</button>', html) == [
            "Cancel",
            "Discard",
            "Delete",
        ]
        assert f'<form method="post" action="{JOBS}?backend=other" class="djq-buttons">' in html
        assert f'name="_selected_action" value="other/{id}"' in html
        assert confirm(operator, "cancel", id, from_page="1")["Location"] == url
        assert confirm(operator, "delete", id, from_page="1")["Location"] == JOBS + IN_OTHER

    def test_all_that_match_and_no_others(
        self, operator: Client, behind: Behind, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(control, "BATCH", 2)
        mail = [behind.add(queue="mail") for _ in range(5)]
        plain = behind.add()
        url = f"{JOBS}?backend=other&queue=mail"

        said = text(post(operator, "cancel", 0, url=url, select_across="1"))
        assert "5 available will end at once" in said
        response = confirm(operator, "cancel", 0, url=url, select_across="1")

        assert told(response) == ["5 jobs were cancelled."]
        assert {state(behind, id) for id in mail} == {"cancelled"}
        assert state(behind, plain) == "available"

    def test_all_that_match_in_a_large_store_are_not_counted(
        self, operator: Client, behind: Behind, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(type(behind.engine), "count_states", lambda *args, **kwargs: None)
        behind.add(5)

        said = text(post(operator, "cancel", 0, select_across="1"))

        assert "All jobs that match; counting them took too long." in said

    def test_the_history_of_a_job_is_shown_wherever_it_lives(self, operator: Client, behind: Behind) -> None:
        id = behind.add()
        confirm(operator, "cancel", id, reason="Too old.")
        confirm(operator, "retry", id)

        for table in (JOBS, FINISHED):
            said = text(operator.get(f"{table}other_2F{id}/history/", follow=True))
            assert "Cancelled. Too old." in said
            assert "Retried." in said

    def test_thousands_share_one_entry_of_the_log(
        self, operator: Client, behind: Behind, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(control, "MOST_LOGGED", 3)
        last = behind.add(5)

        confirm(operator, "cancel", 0, select_across="1")

        entry = LogEntry.objects.get()
        assert entry.object_repr == f"5 jobs, #other/{last - 4} to #other/{last}"

    def test_what_was_done_before_the_server_went_is_logged(
        self, operator: Client, behind: Behind, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(control, "BATCH", 2)
        behind.add(5)
        answers = [behind.engine.cancel, mock.Mock(side_effect=EngineUnavailable("It hung up."))]

        with mock.patch.object(
            type(behind.engine), "cancel", lambda self, *args, **kwargs: answers.pop(0)(*args, **kwargs)
        ):
            response = confirm(operator, "cancel", 0, select_across="1")

        assert response.status_code == 503
        assert "It hung up." in text(response)
        assert sorted(entry.change_message for entry in LogEntry.objects.all()) == [
            "Cancel requested. (outcome unknown)",
            "Cancelled.",
            "Cancelled.",
        ]

    @pytest.mark.parametrize("key", ["x", "other/x", "default/1", "nobody/1", "other/-1", "other/1/2"])
    def test_a_key_of_nothing_here_is_refused(self, operator: Client, behind: Behind, key: str) -> None:
        assert confirm(operator, "delete", key).status_code == 400


class TestQueues:
    def test_a_queue_is_paused_after_a_question_and_resumed(self, operator: Client, behind: Behind) -> None:
        behind.add(queue="mail")
        url = QUEUES + IN_OTHER

        asked = text(operator.post(url, {"act": "pause", "queue": "mail"}))
        assert "1 job is waiting. Neither it nor new jobs will start until the queue is resumed." in asked
        assert behind.engine.queues() == []

        values = {"act": "pause", "queue": "mail", "confirmed": "yes", "reason": "No paper."}
        response = operator.post(url, values)
        assert (response["Location"], told(response)) == (url, ["Queue mail is paused."])
        assert told(operator.post(url, values))[-1] == "Queue mail was paused already."
        [rules] = behind.engine.queues()
        assert (rules.name, rules.pause_reason) == ("mail", "No paper.")
        assert "Paused by staff" in text(operator.post(url, {"act": "resume", "queue": "mail"}))
        assert "No paper." in text(operator.get(f"{QUEUES}other_2Fmail/change/"))
        assert "Paused. No paper." in text(operator.get(f"{QUEUES}other_2Fmail/history/"))

        said = told(operator.post(url, {"act": "resume", "queue": "mail", "confirmed": "yes"}))[-1]
        assert said == "Queue mail is resumed."
        assert [entry.object_id for entry in LogEntry.objects.all()] == ["other/mail", "other/mail"]
        assert all(rules.paused_at is None for rules in behind.engine.queues())
