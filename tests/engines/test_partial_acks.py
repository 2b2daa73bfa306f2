"""An ack in several steps, of which one fails: what was stored is told."""

from __future__ import annotations

from typing import Any

import pytest

from djqueue.exceptions import EngineUnavailable
from djqueue.jobs.states import JobState
from tests.engines.test_conformance import ack, fetch_one, insert_one

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])


@pytest.mark.parametrize(("engine", "step"), [("postgres", "ack_cancelled"), ("valkey", "ack")], indirect=["engine"])
def test_t18_what_was_stored_before_a_step_failed_is_told(
    engine: Any, worker: Any, me: Any, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = insert_one(engine), insert_one(engine)
    done, cancelled = fetch_one(worker, me), fetch_one(worker, me)
    engine.cancel([second])
    owner = worker.fetcher if step == "ack_cancelled" else worker._client
    run = owner.run

    def fail(asked: str, *args: Any) -> Any:
        if asked == step:
            raise EngineUnavailable("The connection was lost.")
        return run(asked, *args)

    monkeypatch.setattr(owner, "run", fail)

    with pytest.raises(EngineUnavailable) as raised:
        worker.ack([ack(done), ack(cancelled, JobState.RETRYABLE, delay=5.0, error="{}")])

    assert raised.value.accepted == {first}
    assert engine.get(first).state == JobState.COMPLETED
