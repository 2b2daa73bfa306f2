from __future__ import annotations

import io
import json
from uuid import uuid4

import pytest
from django.core.management import call_command

from djqueue import api
from tests.admin.conftest import ago, make_worker
from tests.app.tasks import add, send_mail
from tests.defaults import backend, committed, default_store, insert, register
from tests.roles import Roles

__all__ = ["default_store"]


def stats(*args: str) -> str:
    out = io.StringIO()
    call_command("queuestats", *args, stdout=out)
    return out.getvalue()


@pytest.mark.django_db
def test_every_queue_is_shown_with_what_matters() -> None:
    insert(send_mail, "anna", now=ago(seconds=90))
    add.enqueue(1)
    api.pause("reports", by="anna", reason="No paper.")
    make_worker(queues={"default": None})
    make_worker(name="gone", queues={"mail": 4}, beat_at=ago(seconds=75))

    lines = stats().splitlines()

    assert [" ".join(line.split()) for line in lines[1:]] == [
        next(" ".join(line.split()) for line in lines if line.startswith("default")),
        next(" ".join(line.split()) for line in lines if line.startswith("mail")),
        "reports 0 0 0 0 0 - 0 paused by anna: No paper.",
        "Worker gone is silent: last heartbeat 75 s ago.",
    ]
    assert " ".join(lines[2].split()).startswith("mail 0 1 0 0 0 90.")
    assert lines[2].endswith("0  not served, 1 silent")
    assert lines[1].split()[-1] == "1"


@pytest.mark.usefixtures("default_store")
class TestEachStore:
    @committed
    def test_queues_are_shown_with_what_waits_and_who_serves_them(self) -> None:
        insert(send_mail, "anna", now=ago(seconds=90))
        add.enqueue(1)
        api.pause("reports", by="anna", reason="No paper.")
        register(default=None)

        rows = [" ".join(line.split()) for line in stats().splitlines()]

        assert rows[1].startswith("default 0 1 0 0 0 0.")
        assert rows[1].endswith("s 1")
        assert rows[2].startswith("mail 0 1 0 0 0 90.")
        assert rows[2].endswith("s 0 not served")
        assert rows[3:] == ["reports 0 0 0 0 0 - 0 paused by anna: No paper."]

    @committed
    def test_as_json_it_is_for_programs(self) -> None:
        send_mail.enqueue("anna")
        api.pause("mail", by="anna")
        id = uuid4()
        register(id, mail=4)
        with Roles(backend().engine) as engine:
            engine.bury({id: None})

        found = json.loads(stats("--json"))

        [mail] = found["queues"]
        assert mail["states"] == {"scheduled": 0, "available": 1, "executing": 0, "retryable": 0, "suspended": 0}
        assert 0 <= mail["oldest_available_seconds"] < 60
        assert (mail["paused"]["by"], mail["paused"]["reason"], mail["workers"]) == ("anna", "", 0)
        assert [(one["id"], one["state"], one["queues"]) for one in found["workers"]] == [(str(id), "dead", ["mail"])]

    @pytest.mark.django_db
    def test_nothing_is_there_yet(self) -> None:
        assert stats() == "No queues yet.\n"
