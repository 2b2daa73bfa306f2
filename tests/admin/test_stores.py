"""The pages of jobs that the admin knows from an engine only."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from djqueue import stores as entries
from djqueue.admin import job_url
from djqueue.cron import CronDefinition
from djqueue.engines.redis import inspector as walks
from djqueue.engines.redis import listing
from djqueue.jobs.compression import compressed
from djqueue.jobs.encoding import Encoded
from djqueue.jobs.records import NewJob
from djqueue.jobs.states import JobState
from tests.admin.conftest import Behind, Login, backend_of, make_job, text

LIVE, FINISHED = "/admin/djqueue/job/", "/admin/djqueue/finishedjob/"
QUEUES, WORKERS = "/admin/djqueue/queue/", "/admin/djqueue/worker/"
EVIL = "<script>alert(1)</script>\"'&"


def shown(client: Client, url: str = LIVE, **params: str) -> list[str]:
    response = client.get(url, {"backend": "other", **params})
    assert response.status_code == 200, response.get("Location")
    return [row.key for row in response.context["cl"].result_list]


def keys(*ids: int) -> list[str]:
    return [f"other/{id}" for id in ids]


def page(client: Client, id: int, url: str = LIVE) -> str:
    response = client.get(f"{url}other_2F{id}/change/")
    assert response.status_code == 200, response.get("Location")
    return response.content.decode()


class TestLists:
    def test_each_backend_has_its_own_list_and_a_tab_to_it(self, viewer: Client, behind: Behind) -> None:
        id = behind.add()

        tables, others = viewer.get(LIVE), viewer.get(LIVE, {"backend": "other"})

        assert shown(viewer) == keys(id)
        assert f'<a href="{LIVE}" aria-current="page">default</a>' in tables.content.decode()
        assert f'<a href="{LIVE}?backend=other" aria-current="page">other</a>' in others.content.decode()
        assert f'href="{LIVE}other_2F{id}/change/' in others.content.decode()

    def test_without_another_backend_there_are_no_tabs(self, viewer: Client) -> None:
        assert "djq-stores" not in viewer.get(LIVE).content.decode()

    def test_several_stores_have_several_tabs_and_backends_that_share_one_share_one(
        self, viewer: Client, settings: Any
    ) -> None:
        a, b = (backend_of("valkey") for _ in range(2))
        a["OPTIONS"]["prefix"] = "elsewhere"
        settings.TASKS = {**settings.TASKS, "a": a, "b": b, "c": b}
        [job] = entries.store("c").engine.insert([NewJob("shop.tasks.send")])

        response = viewer.get(LIVE, {"backend": "c"})

        assert [label for label, *_ in response.context["source_tabs"]] == ["default", "a", "b, c"]
        assert [row.key for row in response.context["cl"].result_list] == [f"b/{job.id}"]
        assert viewer.get(f"{LIVE}c_2F{job.id}/change/").status_code == 200
        assert viewer.get(LIVE, {"backend": "a"}).context["cl"].result_list == []
        assert job_url(job.id, backend="c") == f"{LIVE}b_2F{job.id}/change/"

    @pytest.mark.parametrize("alias", ["nobody", "", "../x", EVIL])
    def test_a_backend_that_does_not_exist_is_not_found(self, viewer: Client, behind: Behind, alias: str) -> None:
        for url in (LIVE, FINISHED, QUEUES, WORKERS):
            assert viewer.get(url, {"backend": alias}).status_code == 404

    def test_a_job_is_shown_in_human_words(self, viewer: Client, behind: Behind) -> None:
        behind.add(max_attempts=5, priority=7)
        behind.fetch()
        behind.add(queue="mail", delay=timedelta(minutes=5, seconds=0.4))

        said = text(viewer.get(LIVE, {"backend": "other"}))

        assert re.search(r"executing default send shop\. tasks just now runs \d+ ms 1 of 5 priority 7 web-3:1", said)
        assert re.search(r"scheduled mail send shop\. tasks just now due in 5 min 0 of 20 –", said)

    def test_live_and_finished_jobs_have_lists_of_their_own_newest_first(self, viewer: Client, behind: Behind) -> None:
        done = [behind.finish(), behind.finish(JobState.DISCARDED), behind.finish()]
        live = [behind.add(), behind.add(delay=timedelta(hours=1)), behind.add()]

        assert shown(viewer) == keys(*reversed(live))
        assert shown(viewer, FINISHED) == keys(*reversed(done))

    def test_filters_narrow_the_lists(self, viewer: Client, behind: Behind) -> None:
        plain = behind.add()
        mail = behind.add(queue="mail", task="shop.tasks.post")
        later = behind.add(delay=timedelta(hours=1))
        discarded = behind.finish(JobState.DISCARDED)
        behind.finish()

        assert shown(viewer, state="scheduled") == keys(later)
        assert shown(viewer, state="available") == keys(mail, plain)
        assert shown(viewer, queue="mail") == keys(mail)
        assert shown(viewer, task="shop.tasks.post") == keys(mail)
        assert shown(viewer, within="hour") == keys(later, mail, plain)
        assert shown(viewer, queue="mail", state="scheduled") == []
        assert shown(viewer, FINISHED, state="discarded") == keys(discarded)
        html = viewer.get(LIVE, {"backend": "other", "queue": "mail"}).content.decode()
        assert 'href="?backend=other&amp;queue=mail&amp;state=available"' in html
        assert '<a href="?backend=other">&#10006; Clear all filters</a>' in html
        assert '<input type="hidden" name="backend" value="other">' in html

    def test_what_is_no_filter_or_no_place_is_refused(self, viewer: Client, behind: Behind) -> None:
        assert viewer.get(LIVE, {"backend": "other", "args": "1"}).status_code == 400
        for place in ("x", "9" * 30):
            response = viewer.get(LIVE, {"backend": "other", "after": place})
            assert response["Location"] == f"{LIVE}?backend=other&e=1"

    def test_a_search_finds_a_task_by_its_beginning_and_jobs_by_their_worker(
        self, viewer: Client, behind: Behind
    ) -> None:
        mine = behind.add()
        behind.fetch()
        resize = behind.add(task="shop.tasks.resize_image")
        behind.add(task="blog.tasks.resize_image")

        assert shown(viewer, q="shop.tasks.resize") == keys(resize)
        assert shown(viewer, q="shop_tasks") == shown(viewer, q="%") == []
        assert shown(viewer, q=f" {behind.me} ") == keys(mine)
        assert shown(viewer, q="9" * 30) == shown(viewer, q="999999999") == []

    @pytest.mark.parametrize("url", [LIVE, FINISHED])
    def test_a_search_for_an_id_leads_to_the_job(self, viewer: Client, behind: Behind, url: str) -> None:
        live, done = behind.add(), behind.finish()

        for term, goal in (
            (f"{live}", f"{LIVE}other_2F{live}/change/"),
            (f"#other/{done}", f"{FINISHED}other_2F{done}/change/"),
        ):
            assert viewer.get(url, {"backend": "other", "q": term})["Location"] == goal

    def test_pages_show_each_job_once_while_new_ones_come(self, viewer: Client, behind: Behind) -> None:
        last = behind.add(250)

        lists = [viewer.get(LIVE, {"backend": "other"}).context["cl"]]
        while lists[-1].older_url:
            behind.add()
            lists.append(viewer.get(LIVE + lists[-1].older_url).context["cl"])
        newest = viewer.get(LIVE + lists[-1].newest_url).context["cl"]

        assert [row.key for each in lists for row in each.result_list] == keys(*range(last, last - 250, -1))
        assert [len(each.result_list) for each in lists] == [100, 100, 50]
        assert [each.count_words for each in lists] == ["250 jobs", "251 jobs", "252 jobs"]
        assert newest.result_list[2].key == f"other/{last}"

    @pytest.mark.parametrize("behind", ["valkey"], indirect=True)
    def test_a_search_that_takes_too_long_shows_what_it_found_and_can_go_on(
        self, viewer: Client, behind: Behind, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(listing, "READ_LIMIT", timedelta(seconds=-1))
        monkeypatch.setattr(walks, "PATIENCE", 500)
        wanted = [behind.add(2, task="rare.task")]
        behind.add(600)
        wanted.append(behind.add(task="rare.task"))

        response = viewer.get(LIVE, {"backend": "other", "q": "rare"})
        first = response.context["cl"]
        rest = viewer.get(LIVE + first.older_url).context["cl"]

        assert "Searching all jobs took too long" in text(response)
        assert "Continue the search in older jobs" in text(response)
        assert [row.key for row in first.result_list] == keys(wanted[1])
        assert [row.key for row in rest.result_list] == keys(wanted[0], wanted[0] - 1)
        assert not rest.older_url

    def test_a_filter_is_not_counted_unless_the_store_counts_that_anyway(self, viewer: Client, behind: Behind) -> None:
        behind.add(150)
        behind.add(150, queue="mail", task="shop.tasks.post")

        def words(**params: str) -> str:
            return str(viewer.get(LIVE, {"backend": "other", **params}).context["cl"].count_words)

        assert (words(), words(queue="mail"), words(state="scheduled")) == ("300 jobs", "150 jobs", "0 jobs")
        assert words(task="shop.tasks.post") == words(within="hour") == "100 shown"

    def test_a_list_says_what_only_the_tables_can_do(self, viewer: Client, behind: Behind) -> None:
        said = text(viewer.get(FINISHED, {"backend": "other"}))

        assert "In the order in which they were enqueued" in said
        assert "In the order in which they were enqueued" not in text(viewer.get(FINISHED))


class TestJobs:
    def test_a_page_shows_arguments_result_errors_and_timeline(self, viewer: Client, behind: Behind) -> None:
        error = {"attempt": 1, "exception": "shop.Oops", "message": "no ink", "traceback": "File x"}
        id = behind.finish(
            outcome={"result": '{"sent": true}', "error": json.dumps(error)},
            args='[1, "zwei"]',
            kwargs='{"drei": null}',
            meta='{"cron": {"entry": "nightly"}}',
        )

        html = page(viewer, id, FINISHED)

        for expected in (
            "&quot;zwei&quot;",
            "&quot;drei&quot;: null",
            "&quot;sent&quot;: true",
            "shop.Oops",
            "no ink",
            "nightly",
        ):
            assert expected in html
        assert "Completed in attempt 1 of 20." in html
        assert re.findall(r"<strong>(.*?)</strong> <span", html)[:2] == ["Enqueued", "Available to workers"]

    def test_compressed_arguments_are_shown_as_they_were_given(self, viewer: Client, behind: Behind) -> None:
        args, kwargs = compressed(Encoded(json.dumps(["ink"] * 500), '{"paper": "white"}'))
        assert "zlib" in args
        html = page(viewer, behind.add(args=args, kwargs=kwargs))

        assert html.count("&quot;ink&quot;") == 500
        assert "&quot;paper&quot;: &quot;white&quot;" in html
        assert "zlib" not in html

    def test_why_a_job_does_not_run_is_said(self, viewer: Client, behind: Behind) -> None:
        mail, default = behind.add(queue="mail"), behind.add()

        assert "no live worker serves queue &#x27;mail&#x27;." in page(viewer, mail)
        assert "one worker serves queue &#x27;default&#x27;" in page(viewer, default)
        behind.engine.pause("mail", by="anna", reason="No paper.")
        assert "Queue &#x27;mail&#x27; was paused by anna" in page(viewer, mail)
        behind.fetch()
        assert "Executing on worker web-3:1 for" in page(viewer, default)

    def test_links_stay_with_the_backend(self, viewer: Client, behind: Behind) -> None:
        behind.add()
        [job] = behind.fetch()

        html = page(viewer, job.id)

        assert f'<a href="{LIVE}?backend=other">Jobs</a>' in html
        assert f'href="{LIVE}?backend=other&amp;queue=default"' in html
        assert f'href="{WORKERS}other_2F{behind.me}/change/"' in html
        assert f'href="{LIVE}other_2F{job.id}/history/' in html

    def test_a_live_job_that_has_finished_leads_to_its_new_page(self, viewer: Client, behind: Behind) -> None:
        live, done = behind.add(), behind.finish()

        assert viewer.get(job_url(done, backend="other"))["Location"] == f"{FINISHED}other_2F{done}/change/"
        assert viewer.get(f"{FINISHED}other_2F{live}/change/")["Location"] == job_url(live, backend="other")

    @pytest.mark.parametrize("id", ["999999999", "x", "9" * 30, "-1", "²", "other/1"])
    def test_a_job_that_is_not_there_is_not_found(self, viewer: Client, behind: Behind, id: str) -> None:
        assert viewer.get(f"{LIVE}other_2F{id}/change/").status_code == 404

    def test_ids_of_two_stores_are_not_mixed_up(self, viewer: Client, behind: Behind) -> None:
        id = behind.add(task="shop.tasks.behind")
        make_job(id=id + 1000)

        assert viewer.get(f"{LIVE}{id + 1000}/change/").status_code == 200
        assert viewer.get(f"{LIVE}other_2F{id + 1000}/change/").status_code == (
            404 if "redis" in type(behind.engine).__module__ else 200
        )

    def test_nothing_that_a_store_holds_becomes_html(self, viewer: Client, behind: Behind) -> None:
        evil = json.dumps([EVIL])
        values = {"task": EVIL, "args": evil, "kwargs": json.dumps({EVIL: EVIL}), "meta": json.dumps({EVIL: EVIL})}
        error = json.dumps(dict.fromkeys(("attempt", "at", "exception", "message", "traceback", "worker"), EVIL))
        live, done = behind.add(**values), behind.finish(JobState.DISCARDED, {"error": error}, **values)
        behind.engine.cancel([live], by=EVIL, reason=EVIL)
        behind.engine.pause("mail", by=EVIL, reason=EVIL)

        for url in (
            f"{LIVE}?backend=other",
            f"{FINISHED}?backend=other",
            f"{FINISHED}other_2F{live}/change/",
            f"{FINISHED}other_2F{done}/change/",
            f"{QUEUES}?backend=other",
            f"{QUEUES}other_2Fmail/change/",
        ):
            html = viewer.get(url).content.decode()
            assert "<script>alert" not in html, url
            assert " style=" not in html
            assert "&lt;script&gt;alert" in html or url.startswith(f"{LIVE}?"), url


class TestQueuesAndWorkers:
    def test_queues_show_counts_age_pauses_and_health(self, viewer: Client, behind: Behind) -> None:
        behind.add(2)
        behind.fetch()
        behind.add(queue="mail", delay=timedelta(hours=1))
        behind.engine.pause("mail", by="anna", reason="No paper.")

        said = text(viewer.get(QUEUES, {"backend": "other"}))

        assert re.search(r"default served 0 1 1 0 0 \d+ ms 1 2", said)
        assert re.search(r"mail paused for \d+ ms by anna: No paper\. 1 0 0 0 0 – 0 0", said)
        assert "warning queue mail It is paused; nothing waits." in said
        assert "bad leader No worker is the leader" in said
        assert "Health" not in text(viewer.get(QUEUES))

    def test_a_worker_is_listed_and_leads_to_what_it_executes(self, viewer: Client, behind: Behind) -> None:
        assert re.search(
            r"web-3:1 alive web-3 17 (default:2, ended|ended, default:2) 4 just now",
            text(viewer.get(WORKERS, {"backend": "other"})),
        )
        assert "0 workers" in text(viewer.get(WORKERS, {"backend": "other", "q": "nobody"}))

        html = viewer.get(f"{WORKERS}other_2F{behind.me}/change/").content.decode()
        assert f'href="{LIVE}?backend=other&amp;q={behind.me}&amp;state=executing"' in html
        assert viewer.get(f"{WORKERS}other_2F{behind.me}x/change/").status_code == 302

    def test_a_dead_worker_says_so(self, viewer: Client, behind: Behind) -> None:
        behind.add()
        [job] = behind.fetch()
        behind.worker.bury({behind.me: None})

        assert "djq-dead" in viewer.get(WORKERS, {"backend": "other"}).content.decode()
        assert "Worker web-3:1 died while executing it" in page(viewer, job.id)


class TestWhoMay:
    @pytest.mark.parametrize("model", ["job", "finishedjob", "queue", "worker", "cronentry"])
    def test_who_may_not_view_sees_nothing(self, login: Login, behind: Behind, model: str) -> None:
        behind.engine.cron.add("nightly", CronDefinition(task="shop.tasks.send", expression="@daily"))
        ids = {
            "job": behind.add(),
            "finishedjob": behind.finish(),
            "queue": "mail",
            "worker": behind.me,
            "cronentry": behind.engine.cron.entries()[0].id,
        }
        behind.engine.pause("mail")
        client = login(*(f"view_{other}" for other in ("job", "queue", "worker") if other != model))

        assert client.get(f"/admin/djqueue/{model}/", {"backend": "other"}).status_code == 403
        for act in ("change", "history"):
            assert client.get(f"/admin/djqueue/{model}/other_2F{ids[model]}/{act}/").status_code == 403

    def test_who_may_not_view_finished_jobs_does_not_learn_that_a_job_finished(
        self, login: Login, behind: Behind
    ) -> None:
        client, id = login("view_job"), behind.finish()

        assert client.get(f"{LIVE}other_2F{id}/change/").status_code == 403
        assert client.get(LIVE, {"backend": "other", "q": str(id)}).status_code == 200

    def test_nobody_can_write_a_row(self, admin_client: Client, behind: Behind) -> None:
        id = behind.add()

        for act in ("change", "delete"):
            response = admin_client.post(f"{LIVE}other_2F{id}/{act}/", {"task": "os.system", "post": "yes"})
            assert response.status_code == 403
        assert admin_client.post(f"{LIVE}add/?backend=other", {"task": "os.system"}).status_code == 403
        assert User.objects.get().is_superuser
