"""What pages look like in a browser, measured there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.contrib import admin
from django.test import Client

import djqueue
from djqueue import crontab
from djqueue.models import CronEntry
from tests.admin.conftest import Login, ago, make_finished, make_job, make_worker
from tests.crontab import tasks

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--window-size=1280,1000"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--virtual-time-budget=2000"),
]
pytestmark = [pytest.mark.django_db, pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed.")]


def measure(html: str, script: str, directory: Path) -> Any:
    """Lay a page out at 1280 pixels and return what an expression says there."""
    roots = [Path(module.__file__ or "").parent / "static" for module in (admin, djqueue)]

    def style(match: re.Match[str]) -> str:
        name = re.search(r'href="/?static/([^"?]+)', match[0])
        files = [root / name[1] for root in roots if name and (root / name[1]).is_file()]
        return "".join(f"<style>{file.read_text()}</style>" for file in files)

    html = re.sub(r'<link [^>]*rel="stylesheet"[^>]*>', style, html)
    # Django's script shows the sidebar at first.
    html = html.replace('<div class="main" id="main">', '<div class="main shifted" id="main">')
    html = re.sub(r"<script\b.*?</script>", "", html, flags=re.DOTALL)
    result = f"<script>document.documentElement.innerHTML = `<pre>${{JSON.stringify({script})}}</pre>`</script>"
    page = directory / f"{uuid4()}.html"
    page.write_text(html + result, encoding="utf-8")
    command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={directory / 'profile'}", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    found = re.search(r"<pre>(.*?)</pre>", done.stdout, re.DOTALL)
    assert found is not None, done.stderr[-2000:]
    return json.loads(unescape(found[1]))


def test_t36_the_headings_of_a_cron_entry_are_a_line_high(login: Login, tmp_path: Path) -> None:
    entry = crontab.add("nightly", tasks.plain.module_path, "0 3 * * *", args=[1])
    client = login("view_cronentry", "change_cronentry", "delete_cronentry", "pause_cronentry", "run_cronentry")
    html = client.get(f"/admin/djqueue/cronentry/{entry.id}/change/").content.decode()

    heights = measure(html, "[...document.querySelectorAll('.module h2')].map(each => each.offsetHeight)", tmp_path)

    assert len(heights) == 3
    assert all(15 < height < 60 for height in heights), heights


def test_t42_nothing_of_the_lists_is_cut(viewer: Client, tmp_path: Path) -> None:
    worker = make_worker(name="a-worker-with-a-long-name-1.example.org:12345")
    values: dict[str, Any] = {
        "task": "bookings.tasks.send_confirmation_to_every_traveller_of_the_group",
        "queue": "notifications-of-the-mailing-department",
        "kwargs": {"email": "x" * 300},
        "errors": [{"exception": "a.ConnectionError", "message": "y" * 300}],
        "attempted_by": worker.pk,
        "priority": -100,
    }
    make_job(id=12_345_678, state="executing", attempted_at=ago(days=1), **values)
    make_finished(
        id=12_345_679, state="discarded", attempt=20, ready_at=ago(days=3), attempted_at=ago(days=2), **values
    )

    for url in ("/admin/djqueue/job/", "/admin/djqueue/finishedjob/"):
        html = viewer.get(url).content.decode()
        script = "(e => [e.scrollWidth, e.clientWidth])(document.querySelector('#changelist .results'))"
        wanted, there_is = measure(html, script, tmp_path)
        assert wanted <= there_is, url


def test_nothing_is_cut_of_jobs_that_wait_for_minutes(viewer: Client, tmp_path: Path) -> None:
    # The width of an id is part of the width of the list.
    make_job(
        id=12_345_678, task="lookapp.tasks.clean_up", queue="mail", priority=20, ready_at=ago(minutes=2, seconds=50)
    )
    make_job(
        id=12_345_679,
        state="retryable",
        attempt=12,
        priority=-20,
        scheduled_at=ago(hours=-23, minutes=-59, seconds=-30),
    )

    script = "(e => [e.scrollWidth, e.clientWidth])(document.querySelector('#changelist .results'))"
    wanted, there_is = measure(viewer.get("/admin/djqueue/job/").content.decode(), script, tmp_path)

    assert wanted <= there_is


def test_nothing_is_cut_of_a_crontab_with_long_names(login: Login, tmp_path: Path) -> None:
    crontab.add("nightly", tasks.plain.module_path, "0 3 * * *", args=[1])
    name = "bookings.tasks.weekly_newsletter_for_all_subscribers_of_the_northern_region"
    values = {"task": name, "expression": "*/10 8-17 * * mon-fri", "timezone": "America/Argentina/ComodRivadavia"}
    CronEntry.objects.filter(name="nightly").update(name=name, **values)
    client = login("view_cronentry")

    script = "(e => [e.scrollWidth, e.clientWidth])(document.querySelector('#changelist .results'))"
    wanted, there_is = measure(client.get("/admin/djqueue/cronentry/").content.decode(), script, tmp_path)

    assert wanted <= there_is
