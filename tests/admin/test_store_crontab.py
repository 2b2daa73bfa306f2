"""The crontab of a backend that the admin knows from its engine only."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from djqueue import crontab
from djqueue.cron import CronDefinition
from tests.admin.conftest import Behind, Login, text, told
from tests.crontab import tasks

LIST = "/admin/djqueue/cronentry/"
HERE = f"{LIST}?backend=default"
ADD = f"{LIST}add/?_changelist_filters=backend%3Ddefault"
TASK = tasks.plain.module_path
ALL = ("view_cronentry", "add_cronentry", "change_cronentry", "delete_cronentry", "pause_cronentry", "run_cronentry")


def make(home: Behind, name: str = "nightly", *, is_in_code: bool = False, **values: Any) -> int:
    definition = CronDefinition(**{"task": TASK, "expression": "0 3 * * *", "args": (1,), **values})
    assert home.engine.cron.add(name, definition, code=definition if is_in_code else None, by="anna")
    return crontab.get(name).id


def page(entry: int, act: str = "change") -> str:
    return f"{LIST}default_2F{entry}/{act}/"


def act_url(entry: int, verb: str) -> str:
    return reverse("admin:djqueue_cronentry_act", args=[f"default_2F{entry}", verb])


def form(**fields: Any) -> dict[str, Any]:
    return {
        "name": "nightly", "task": TASK, "args": "[1]", "kwargs": "{}", "expression": "0 3 * * *",
        "timezone": "Europe/Berlin", "misfire": "latest", "misfire_window_seconds": "3600", "overlap": "allow",
        "jitter_seconds": "0", **fields,
    }  # fmt: skip


def test_the_list_shows_state_and_next_time(login: Login, home: Behind) -> None:
    make(home, "a")
    make(home, "b")
    crontab.pause("b", "no paper", by="anna")
    make(home, "c", task="gone.tasks.away")
    client = login(*ALL)

    response = client.get(HERE)
    said = text(response)

    assert re.search(r"a 0 3 \* \* \* UTC tests\.crontab\.tasks\.plain active", said)
    assert "paused by anna: no paper" in said
    assert [row.shown.name for row in response.context["cl"].result_list] == ["a", "b", "c"]
    assert [
        row.shown.name for row in client.get(HERE, {"backend": "default", "q": "GONE"}).context["cl"].result_list
    ] == ["c"]
    assert f'href="{ADD}"' in response.content.decode()


def test_an_entry_is_added_changed_and_deleted(login: Login, home: Behind) -> None:
    client = login(*ALL)

    added = client.post(ADD, form(kwargs='{"b": 2}', max_runs="3"))
    assert added.status_code == 302, text(added)
    assert added["Location"] == HERE
    entry = crontab.get("nightly")
    assert (entry.definition.kwargs, entry.definition.max_runs) == ({"b": 2}, 3)
    assert entry.created_by.startswith("staff-")

    changed = client.post(page(entry.id), form(expression="*/5 * * * *", kwargs='{"b": 2}', max_runs="3"))
    assert changed.status_code == 302, text(changed)
    assert changed["Location"] == HERE
    assert crontab.get("nightly").definition.expression == "*/5 * * * *"
    stays = client.post(page(entry.id), form(_continue="1"))
    assert stays["Location"].partition("?")[0] == page(entry.id)

    assert "Are you sure" in text(client.get(page(entry.id, "delete")))
    deleted = client.post(page(entry.id, "delete"), {"post": "yes"})
    assert deleted["Location"] == HERE
    assert crontab.entries() == []
    assert {log.object_id for log in LogEntry.objects.all()} == {f"default/{entry.id}"}


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"name": "taken"}, "already exists"),
        ({"expression": "0 0 30 2 *"}, "never comes true"),
        ({"task": "os.system"}, "not one of the available choices"),
        ({"args": "[]"}, "missing a required argument"),
        ({"name": ""}, "This field is required"),
    ],
)
def test_what_could_not_run_is_refused_in_the_form(
    login: Login, home: Behind, fields: dict[str, str], error: str
) -> None:
    make(home, "taken")

    response = login(*ALL).post(ADD, form(**fields))

    assert response.status_code == 200
    assert error in text(response)
    assert [entry.name for entry in crontab.entries()] == ["taken"]


def test_an_entry_is_paused_resumed_and_run_from_its_page(login: Login, home: Behind) -> None:
    entry, client = make(home), login(*ALL, "view_job", "view_finishedjob")

    assert client.post(act_url(entry, "pause"), {"reason": "No paper."})["Location"] == page(entry)
    assert crontab.get("nightly").pause_reason == "No paper."
    assert f'action="{act_url(entry, "resume")}"' in client.get(page(entry)).content.decode()
    client.post(act_url(entry, "resume"))
    assert crontab.get("nightly").state == "active"
    client.post(act_url(entry, "run-now"))

    [tick] = crontab.history("nightly")
    assert tick.job_id is not None
    html = client.get(page(entry)).content.decode()
    assert f'<a href="/admin/djqueue/job/default_2F{tick.job_id}/change/">#{tick.job_id}</a>' in html
    assert "Paused. No paper." in text(client.get(page(entry, "history")))


def test_what_the_code_has_cannot_be_deleted_and_is_set_back(login: Login, home: Behind) -> None:
    entry, client = make(home, is_in_code=True), login(*ALL)
    crontab.change("nightly", expression="@hourly")

    assert client.post(page(entry, "delete"), {"post": "yes"}).status_code == 403
    assert "differs from the code: expression" in text(client.get(HERE))
    client.post(act_url(entry, "reset"))

    assert crontab.get("nightly").definition.expression == "0 3 * * *"


def test_several_are_paused_and_run_from_the_list(login: Login, home: Behind) -> None:
    entries, client = [make(home, name) for name in ("a", "b", "c")], login(*ALL)

    def act(action: str) -> list[str]:
        chosen = [f"default/{id}" for id in entries[:2]]
        return told(client.post(HERE, {"action": action, "index": "0", "_selected_action": chosen}))

    assert act("pause_selected")[-1] == "Paused: 2 entries."
    assert [entry.state for entry in crontab.entries()] == ["paused", "paused", "active"]
    assert act("run_selected")[-1] == "Enqueued now: 2 entries."
    assert home.engine.counts()[0].states == {"available": 2}


def test_who_may_only_view_changes_nothing(login: Login, home: Behind) -> None:
    entry, client = make(home), login("view_cronentry")

    assert client.get(ADD).status_code == 403
    assert client.post(ADD, form(name="x")).status_code == 403
    assert client.post(page(entry), form()).status_code == 403
    for verb in ("pause", "resume", "run-now", "reset"):
        assert client.post(act_url(entry, verb)).status_code == 403
    assert client.post(page(entry, "delete"), {"post": "yes"}).status_code == 403
    html = client.get(page(entry)).content.decode()
    assert "0 3 * * *" in html
    assert 'class="djq-act"' not in html
    assert crontab.get("nightly").revision == 1


def test_an_entry_that_is_not_there_leads_away(admin_client: Client, home: Behind) -> None:
    assert admin_client.get(page(999_999)).status_code == 302
    assert admin_client.post(act_url(999_999, "pause")).status_code == 403
