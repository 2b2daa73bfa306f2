"""Actions that a project adds to the lists of jobs."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin import site
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.test import RequestFactory

from djqueue.admin import FinishedJobAdmin
from djqueue.models import FinishedJob
from tests.admin.conftest import make_finished


class OwnAdmin(FinishedJobAdmin):
    actions = ["note"]

    def note(self, request: HttpRequest, selection: Any) -> None:
        self.noted = selection


@pytest.mark.django_db
def test_an_action_receives_the_selection(rf: RequestFactory, admin_user: User) -> None:
    own = OwnAdmin(FinishedJob, site)
    chosen, _ = make_finished().pk, make_finished(queue="mail").pk

    def act(query: str = "", **values: str) -> Any:
        values = {"action": "note", "_selected_action": chosen, **values}
        request = rf.post(f"/admin/djqueue/finishedjob/{query}", values)
        request.user = admin_user
        assert own.changelist_view(request).status_code == 302
        return own.noted

    assert (act().ids, act().is_all) == ([chosen], False)
    selection = act("?queue=mail", select_across="1")
    assert (selection.is_all, selection.jobs.queue) == (True, "mail")
