from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from djqueue import crontab
from djqueue.cron import CronDefinition
from djqueue.engines.postgres import PostgresEngine
from djqueue.models import CronEntry, CronTick, Job
from tests.admin.conftest import Login, ago
from tests.cron.test_schedule import HOSTILE
from tests.crontab import tasks

LIST = "/admin/djqueue/cronentry/"
ADD = f"{LIST}add/"
TASK = tasks.plain.module_path
pytestmark = pytest.mark.django_db


def make(name: str = "nightly", **fields: Any) -> CronEntry:
    crontab.add(name, TASK, fields.pop("expression", "0 3 * * *"), **{"args": [1], **fields})
    return CronEntry.objects.get(name=name)


def make_from_code(name: str = "of-code") -> CronEntry:
    definition = CronDefinition(task=TASK, expression="0 3 * * *", args=(1,))
    PostgresEngine("default").cron.add(name, definition, code=definition, by="code")
    return CronEntry.objects.get(name=name)


def page(entry: CronEntry) -> str:
    return f"{LIST}{entry.pk}/change/"


def act(entry: CronEntry, verb: str) -> str:
    return reverse("admin:djqueue_cronentry_act", args=[entry.pk, verb])


def form(**fields: Any) -> dict[str, Any]:
    return {
        "name": "nightly",
        "task": TASK,
        "args": "[1]",
        "kwargs": "{}",
        "expression": "0 3 * * *",
        "timezone": "Europe/Berlin",
        "misfire": "latest",
        "misfire_window_seconds": "3600",
        "overlap": "allow",
        "jitter_seconds": "0",
        **fields,
    }


def errors(client: Client, url: str, **fields: Any) -> str:
    response = client.post(url, form(**fields))
    assert response.status_code == 200, "the form was taken"
    return " ".join(re.findall(r'class="errorlist.*?</ul>', response.content.decode(), re.DOTALL))


def test_the_list_shows_state_next_and_last(login: Login) -> None:
    make("a")
    CronEntry.objects.filter(name="a").update(
        next_at=ago(hours=-2), last_nominal_at=ago(hours=22), last_outcome="skipped: overlap"
    )
    make("b")
    crontab.pause("b", "no paper", by="anna")
    make("c")
    CronEntry.objects.filter(name="c").update(expression="0 0 30 2 *")

    html = login("view_cronentry").get(LIST).content.decode()

    for expected in ("in 2 h", "22 h ago", "skipped: overlap", "djq-paused", "no paper", "never comes true"):
        assert expected in html, expected


def test_who_may_only_view_changes_nothing(login: Login) -> None:
    entry = make()
    viewer = login("view_cronentry")

    assert viewer.get(ADD).status_code == 403
    assert viewer.post(ADD, form(name="x")).status_code == 403
    assert viewer.post(page(entry), form()).status_code == 403
    for verb in ("pause", "resume", "run-now", "reset"):
        assert viewer.post(act(entry, verb)).status_code == 403
    assert viewer.post(f"{LIST}{entry.pk}/delete/", {"post": "yes"}).status_code == 403
    html = viewer.get(page(entry)).content.decode()
    assert "0 3 * * *" in html
    assert 'class="djq-act"' not in html
    assert CronEntry.objects.get().expression == "0 3 * * *"


def test_strangers_see_nothing(login: Login) -> None:
    entry = make()

    for client in (login(), login("view_job")):
        assert client.get(LIST).status_code == 403
        assert client.get(page(entry)).status_code == 403
        assert client.post(act(entry, "pause")).status_code == 403


def test_an_entry_is_added_with_its_author(login: Login) -> None:
    client = login("view_cronentry", "add_cronentry")

    response = client.post(ADD, form(kwargs='{"b": 2}', max_runs="3", priority="-5", queue="reports"))

    assert response.status_code == 302, errors(client, ADD)
    entry = crontab.get("nightly")
    assert entry.definition == CronDefinition(
        task=TASK,
        expression="0 3 * * *",
        timezone="Europe/Berlin",
        args=(1,),
        kwargs={"b": 2},
        max_runs=3,
        priority=-5,
        queue="reports",
    )
    assert entry.created_by.startswith("staff-")
    assert entry.code is None
    assert LogEntry.objects.get().object_id == str(entry.id)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"expression": "0 0 30 2 *"}, "never comes true"),
        ({"expression": "* * * *"}, "has 4 fields"),
        ({"task": "os.system"}, "valid choice"),
        ({"task": "shop.tasks.gone"}, "valid choice"),
        ({"args": "[]"}, "cannot be called"),
        ({"args": '{"a": 1}'}, "use a list for args"),
        ({"args": "["}, "valid JSON"),
        ({"kwargs": '{"zz": 1}'}, "cannot be called"),
        ({"timezone": "../../etc/passwd"}, "valid choice"),
        ({"misfire": "never"}, "valid choice"),
        ({"overlap": "overtake"}, "valid choice"),
        ({"jitter_seconds": "-1"}, "jitter_seconds"),
        ({"max_runs": "0"}, "max_runs"),
        ({"priority": "101"}, "priority"),
        ({"queue": "no queue"}, "queue"),
        ({"name": ""}, "required"),
    ],
)
def test_what_cannot_work_is_refused_with_a_sentence(login: Login, fields: dict[str, Any], words: str) -> None:
    client = login("view_cronentry", "add_cronentry", "change_cronentry")
    entry = make("other")

    assert words in errors(client, ADD, **fields)
    if "name" not in fields:
        assert words in errors(client, page(entry), **fields)
    assert [found.expression for found in CronEntry.objects.all()] == ["0 3 * * *"]


@pytest.mark.parametrize("expression", [text for text in HOSTILE if isinstance(text, str)])
def test_hostile_expressions_are_refused(login: Login, expression: str) -> None:
    assert errors(login("view_cronentry", "add_cronentry"), ADD, expression=expression)
    assert not CronEntry.objects.exists()


def test_a_taken_name_is_refused(login: Login) -> None:
    make()

    assert "already exists" in errors(login("view_cronentry", "add_cronentry"), ADD)


def test_a_change_plans_anew_and_shows_as_drift_of_the_code(login: Login) -> None:
    entry = make_from_code()
    CronEntry.objects.update(next_at=ago(hours=-2))
    client = login("view_cronentry", "change_cronentry")

    assert client.post(page(entry), form(timezone="UTC", expression="0 4 * * *")).status_code == 302

    changed = crontab.get("of-code")
    assert changed.drift == ["expression"]
    assert changed.next_at is None
    assert changed.changed_by.startswith("staff-")
    html = client.get(page(entry)).content.decode()
    assert "in the code" in html
    assert client.post(act(entry, "reset")).status_code == 302
    assert crontab.get("of-code").drift == []


def test_what_the_code_has_cannot_be_deleted_and_what_the_database_has_can(login: Login) -> None:
    client = login("view_cronentry", "delete_cronentry", "change_cronentry")
    code, own = make_from_code(), make("own")
    CronTick.objects.create(entry=own, nominal_at=ago(hours=1), outcome="enqueued")

    assert client.post(f"{LIST}{code.pk}/delete/", {"post": "yes"}).status_code == 403
    assert client.post(f"{LIST}{own.pk}/delete/", {"post": "yes"}).status_code == 302
    assert [entry.name for entry in CronEntry.objects.all()] == ["of-code"]
    assert "delete_selected" not in client.get(LIST).content.decode()


def test_pause_and_resume_need_their_permission_and_post(login: Login) -> None:
    entry = make()
    client = login("view_cronentry", "pause_cronentry")

    assert client.get(act(entry, "pause")).status_code == 403
    assert client.post(act(entry, "pause"), {"reason": "no paper"}).status_code == 302
    paused = crontab.get("nightly")
    assert (paused.state, paused.pause_reason) == ("paused", "no paper")
    assert client.post(act(entry, "resume")).status_code == 302
    assert crontab.get("nightly").state == "active"
    assert client.post(act(entry, "run-now")).status_code == 403
    assert [entry.get_change_message() for entry in LogEntry.objects.order_by("id")] == ["Paused. no paper", "Resumed."]


def test_actions_demand_a_csrf_token(login: Login) -> None:
    entry = make()
    client = login("view_cronentry", "pause_cronentry")
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = client.cookies

    assert strict.post(act(entry, "pause")).status_code == 403
    assert crontab.get("nightly").state == "active"


def test_run_now_enqueues_and_shows_in_the_history(login: Login) -> None:
    entry = make()
    client = login("view_cronentry", "run_cronentry", "view_job", "view_finishedjob")

    assert client.post(act(entry, "run-now")).status_code == 302

    job = Job.objects.get()
    assert (job.task, job.args) == (TASK, [1])
    html = client.get(page(entry)).content.decode()
    assert "by hand, by staff-" in html
    assert f'href="/admin/djqueue/job/{job.pk}/change/"' in html


def test_selected_entries_are_paused_by_who_may(login: Login) -> None:
    chosen = [make("a").pk, make("b").pk]
    make("c")
    data = {"action": "pause_selected", "_selected_action": chosen}

    login("view_cronentry").post(LIST, data)
    assert {entry.state for entry in crontab.entries()} == {"active"}
    login("view_cronentry", "pause_cronentry").post(LIST, data)
    assert [entry.state for entry in crontab.entries()] == ["paused", "paused", "active"]


def test_an_entry_that_cannot_run_says_so_and_stays_readable(login: Login) -> None:
    entry = make()
    CronEntry.objects.update(task="shop.tasks.<b>gone</b>", timezone="Nope/<i>", args={"x": "<script>"})
    CronTick.objects.create(
        entry=entry, nominal_at=datetime(2026, 1, 1, tzinfo=UTC), outcome="skipped", reason="<script>alert(1)</script>"
    )
    client = login("view_cronentry", "run_cronentry", "change_cronentry")

    response = client.post(act(entry, "run-now"), follow=True)

    html = response.content.decode()
    assert "Cannot run" in html
    assert "<b>gone" not in html
    assert "<script>alert" not in html
    assert not Job.objects.exists()


def test_a_new_entry_starts_with_no_task_and_the_time_zone_of_the_project(login: Login, settings: Any) -> None:
    settings.TIME_ZONE = "Europe/Berlin"
    client = login("view_cronentry", "add_cronentry")

    html = client.get(ADD).content.decode()

    assert re.findall(r'<option value="([^"]*)" selected>', html)[:2] == ["", "Europe/Berlin"]
    assert b"This field is required." in client.post(ADD, form(task="")).content


def test_the_labels_of_the_form_begin_alike(login: Login) -> None:
    html = login("view_cronentry", "add_cronentry").get(ADD).content.decode()

    labels = re.findall(r"<label[^>]*>\s*([^<]+?):?\s*</label>", html)

    assert "Task" in labels
    assert [label for label in labels if label[:1].islower()] == []


def test_a_paused_entry_says_by_whom_and_why(login: Login) -> None:
    entry = make()
    crontab.pause("nightly", "stocktaking", by="anna")
    client = login("view_cronentry")

    for url in (LIST, page(entry)):
        assert "by anna: stocktaking" in client.get(url).content.decode(), url


def test_the_page_that_asks_before_deleting_counts_the_entry(login: Login) -> None:
    html = login("view_cronentry", "delete_cronentry").get(f"{LIST}{make().pk}/delete/").content.decode()

    assert re.search(r"Cron entry: 1", html, re.IGNORECASE)


def test_the_list_offers_to_show_all_only_after_a_search(login: Login) -> None:
    client = login("view_cronentry")
    make()
    make("hourly")

    assert "Show all" not in client.get(LIST).content.decode()
    assert "2 total" in client.get(LIST, {"q": "night"}).content.decode()
