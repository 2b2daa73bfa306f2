from __future__ import annotations

from uuid import uuid4

import pytest

from djqueue.maintenance import leader as module
from djqueue.maintenance.leader import LEASE_SECONDS, STUCK_SECONDS, Leader

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])


class Loop:
    last_run: float | None = None


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def leader(open_worker, **loops: Loop) -> Leader:
    one = Leader(open_worker(), uuid4())
    one.loops = loops
    return one


def renew(one: Leader, clock: list[float], seconds: float, *loops: Loop) -> None:
    """Let time pass, with a renewal every two seconds."""
    end = clock[0] + seconds
    while clock[0] < end:
        clock[0] += 2
        for loop in loops:
            loop.last_run = clock[0]
        one.run_once()


def test_when_the_loops_last_ran_is_known_to_whoever_looks(engine, open_worker, clock):
    stager, pruner = Loop(), Loop()
    one = leader(open_worker, stager=stager, pruner=pruner)
    one.run_once()
    stager.last_run = clock[0] - 1

    renew(one, clock, 2)

    health = engine.health()
    assert 3 <= health.loops["stager"] < 60
    assert 2 <= health.loops["pruner"] < 60  # since the election: it has not run
    assert health.leader_seconds is not None


def test_a_leader_whose_stager_hangs_steps_back_for_another(open_worker, clock):
    stager, lifeline = Loop(), Loop()
    one = leader(open_worker, stager=stager, lifeline=lifeline)
    other = leader(open_worker)
    one.run_once()
    stager.last_run = clock[0]
    renew(one, clock, STUCK_SECONDS, lifeline)
    other.run_once()
    assert (one.is_leader, other.is_leader) == (True, False)

    renew(one, clock, 2, lifeline)
    other.run_once()

    assert (one.is_leader, other.is_leader) == (False, True)


def test_alone_it_leads_again_and_the_loops_get_another_chance(open_worker, clock):
    one = leader(open_worker, stager=Loop())
    renew(one, clock, STUCK_SECONDS + 4)
    assert not one.is_leader

    renew(one, clock, LEASE_SECONDS + 2)

    assert one.is_leader


def test_a_pruner_that_rests_for_long_is_no_reason_to_step_back(open_worker, clock):
    stager, pruner = Loop(), Loop()
    one = leader(open_worker, stager=stager, pruner=pruner)

    renew(one, clock, 10 * STUCK_SECONDS, stager)

    assert one.is_leader


def test_t23_b57_a_scheduler_that_hangs_or_dies_is_seen_and_the_lead_goes_to_another(engine, open_worker, clock):
    stager, scheduler = Loop(), Loop()
    one = leader(open_worker, stager=stager, scheduler=scheduler)
    other = leader(open_worker)
    renew(one, clock, 100, stager, scheduler)
    renew(one, clock, STUCK_SECONDS - 2, stager)
    assert one.is_leader
    assert STUCK_SECONDS - 5 < engine.health().loops["scheduler"] < STUCK_SECONDS + 30

    renew(one, clock, 4, stager)
    other.run_once()
    assert (one.is_leader, other.is_leader) == (False, True)


def test_t23_b57_a_scheduler_that_hangs_at_its_first_round_is_seen_too(engine, open_worker, clock):
    stager = Loop()
    one = leader(open_worker, stager=stager, scheduler=Loop())
    one.run_once()
    renew(one, clock, 50, stager)

    assert 45 < engine.health().loops["scheduler"] < 80


def test_t23_a_loop_that_the_present_leader_does_not_have_is_forgotten(engine, open_worker, clock):
    one = leader(open_worker, stager=Loop(), scheduler=Loop(), relay=Loop())
    renew(one, clock, 4)
    assert set(engine.health().loops) == {"stager", "scheduler", "relay"}
    one.on_stop()

    renew(leader(open_worker, stager=Loop()), clock, 4)

    assert set(engine.health().loops) == {"stager"}
