"""Jobs that are not where an address says any more."""

from __future__ import annotations

import pytest
from django.test import Client

from tests.admin.conftest import Behind, Login, make_finished, make_job, text

JOBS, FINISHED = "/admin/djqueue/job/", "/admin/djqueue/finishedjob/"
pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("url", [JOBS, FINISHED])
@pytest.mark.parametrize("page", ["change", "history"])
def test_t29_the_page_of_a_pruned_job_says_why_it_may_be_gone(
    viewer: Client, settings: object, url: str, page: str
) -> None:
    response = viewer.get(f"{url}999999/{page}/")

    assert response.status_code == 404
    said = text(response)
    assert "There is no job 999999 in default." in said
    assert "It finished and has been pruned." in said
    assert "completed 1 day; discarded 30 days" in said
    assert "rolled back" in said


def test_t29_the_kept_times_are_those_of_the_settings(viewer: Client, settings: object) -> None:
    entry = {
        "BACKEND": "djqueue.backends.PostgresBackend",
        "OPTIONS": {"retention": {"completed": {"age": "2 hours", "count": 50}, "discarded": None}},
    }
    settings.TASKS = {"default": entry}  # type: ignore[attr-defined]

    said = text(viewer.get(f"{JOBS}999999/change/"))

    assert "cancelled 7 days; completed 2 h, 50 jobs; discarded forever." in said


def test_t29_who_deleted_it_is_told(login: Login) -> None:
    client = login("view_job", "view_finishedjob", "delete_job")
    job = make_job()
    client.post(JOBS, {"action": "delete_jobs", "index": "0", "_selected_action": job.pk, "confirmed": "yes"})

    said = text(client.get(f"{JOBS}{job.pk}/change/"))

    assert "Deleted." in said
    assert "staff-" in said


def test_t29_what_is_no_id_is_gone_too(viewer: Client) -> None:
    for key in ("x", "-1", "9" * 400, "<script>"):
        response = viewer.get(f"{JOBS}{key}/change/")
        assert response.status_code == 404
        assert b"<script>alert" not in response.content


def test_t29_who_may_not_view_jobs_learns_nothing(login: Login) -> None:
    assert login("view_queue").get(f"{JOBS}999999/change/").status_code == 403
    assert login("view_queue").get(f"{JOBS}999999/history/").status_code == 403


def test_t29_also_of_a_store_elsewhere(viewer: Client, behind: Behind) -> None:
    response = viewer.get(f"{JOBS}other_2F999999/change/")

    assert response.status_code == 404
    assert "There is no job 999999 in other." in text(response)


def test_t63_the_history_of_a_job_that_has_finished_since_leads_on(viewer: Client) -> None:
    done, live = make_finished(), make_job()

    for job, wrong, right in ((done, JOBS, FINISHED), (live, FINISHED, JOBS)):
        response = viewer.get(f"{wrong}{job.pk}/history/", follow=True)
        assert response.redirect_chain == [(f"{right}{job.pk}/history/", 302)]
        assert response.status_code == 200
        assert f"#{job.pk}" in text(response) or str(job.pk) in text(response)


def test_t63_also_of_a_store_elsewhere(viewer: Client, behind: Behind) -> None:
    id = behind.finish()

    response = viewer.get(f"{JOBS}other_2F{id}/history/", follow=True)

    assert response.redirect_chain == [(f"{FINISHED}other_2F{id}/history/", 302)]
    assert response.status_code == 200
