"""The checker finds what is planted, and only that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.chaos import plan
from tests.chaos.checker import Execution, Final, History, Span, check
from tests.chaos.liveness import idle_claims

SUPERVISOR, CHILD, OTHER = 100, 101, 202


def history(*executions: Execution, state: str = "completed", attempt: int | None = None) -> History:
    """A quiet history of job 7, completed by the given executions."""
    made = History(
        enqueued={7: "quick"},
        acknowledged={7: 0.5},
        supervisor_of={CHILD: SUPERVISOR, OTHER: 200},
        slots={"default": 2},
    )
    made.executions[7] = list(executions)
    made.finals[7] = Final(state, attempt or len(executions), 20)
    return made


def ran(start: float, end: float | None, outcome: str = "returned", *, pid: int = CHILD, attempt: int = 1) -> Execution:
    return Execution(7, attempt, pid, start, end=end, outcome=outcome)


def test_a_quiet_run_has_no_violation() -> None:
    assert check(history(ran(1, 2))) == []


PLANTED: dict[str, tuple[str, Callable[[], History]]] = {}


def planted(expected: str) -> Callable[[Callable[[], History]], Callable[[], History]]:
    def add(make: Callable[[], History]) -> Callable[[], History]:
        PLANTED[make.__name__] = expected, make
        return make

    return add


@planted("is gone")
def a_lost_job() -> History:
    made = history()
    del made.finals[7]
    return made


@planted("is gone")
def a_job_that_was_enqueued_before_what_the_store_forgot() -> History:
    made = history()
    del made.finals[7]
    made.acknowledged[7] = 4.0
    made.outages, made.forgotten = [Span(6, 9)], [Span(5, 9)]
    return made


@planted("no explanation")
def a_second_run_of_what_ended_before_what_the_store_forgot() -> History:
    made = history(ran(1, 2), ran(12, 13, pid=OTHER, attempt=1))
    made.outages, made.forgotten = [Span(6, 9)], [Span(5, 9)]
    return made


@planted("never ended: executing")
def a_job_without_an_owner() -> History:
    made = history(ran(1, 2))
    made.finals[7] = Final("executing", 1, 20, live=True)
    return made


@planted("rolled back")
def a_job_of_a_rolled_back_transaction() -> History:
    made = history(ran(1, 2))
    made.rolled_back.add(7)
    return made


@planted("no execution of it returned")
def a_completion_out_of_nothing() -> History:
    return history(attempt=1)


@planted("attempt 21 of 20")
def one_attempt_too_many() -> History:
    return history(ran(1, 2), attempt=21)


@planted("ended as discarded")
def a_job_that_failed_for_no_reason() -> History:
    return history(ran(1, 2), state="discarded")


@planted("no explanation")
def a_second_run_after_a_first_that_ended_well() -> History:
    return history(ran(1, 2), ran(5, 6, pid=OTHER, attempt=2))


@planted("no explanation")
def a_second_run_after_the_kill_of_somebody_else() -> History:
    made = history(ran(1, 2), ran(5, 6, pid=OTHER, attempt=2))
    made.kills[303] = [1.5]
    return made


@planted("no explanation")
def a_second_run_after_a_kill_long_after_the_end() -> History:
    made = history(ran(1, 2), ran(60, 61, pid=OTHER, attempt=2))
    made.kills[CHILD] = [50]
    return made


@planted("no explanation")
def a_second_run_after_an_outage_alone() -> History:
    made = history(ran(1, 2), ran(30, 31, pid=OTHER, attempt=2))
    made.outages = [Span(1.5, 25)]
    return made


@planted("no explanation")
def a_second_run_after_its_supervisor_was_told_once_to_leave() -> History:
    made = history(ran(1, 4, "broken off"), ran(5, 6, pid=OTHER))
    made.terms[SUPERVISOR] = [3.9]
    return made


@planted("no explanation")
def a_second_run_of_what_ended_before_its_supervisor_was_told_again_to_leave() -> History:
    made = history(ran(1, 2), ran(30, 31, pid=OTHER))
    made.terms[SUPERVISOR] = [1.5, 25]
    return made


@planted("no explanation")
def a_second_run_after_a_short_stop() -> History:
    made = history(ran(1, 20), ran(12, 13, pid=OTHER, attempt=2))
    made.stops[SUPERVISOR] = [Span(2, 7)]
    return made


@planted("no explanation")
def a_second_run_after_a_stop_of_the_worker_alone() -> History:
    made = history(ran(1, 20), ran(15, 16, pid=OTHER, attempt=2))
    made.stops[CHILD] = [Span(2, 19)]
    return made


@planted("overlaps")
def two_runs_at_once_where_the_killed_one_still_lives() -> History:
    made = history(ran(1, 20), ran(1.5, 3, pid=OTHER, attempt=2))
    made.kills[CHILD] = [1.6]
    return made


@planted("effect is there 2 times")
def a_transactional_effect_twice() -> History:
    made = history(ran(1, 2))
    made.enqueued[7] = "write"
    made.effects[7] = 2
    return made


@planted("3 jobs of 'default' at once")
def more_jobs_than_slots() -> History:
    made = history(ran(1, 5))
    for job in (8, 9):
        made.enqueued[job] = "quick"
        made.finals[job] = Final("completed", 1, 20)
        made.executions[job] = [Execution(job, 1, CHILD, 1 + job / 10, end=4, outcome="returned")]
    return made


@planted("the copy that a fork made of 101")
def a_run_in_the_copy_that_a_fork_made() -> History:
    made = history(ran(1, 2, "again"), ran(2, 3, pid=303, attempt=2))
    made.copies[303] = CHILD
    return made


@planted("no explanation")
def a_second_run_after_a_first_that_ended_well_before_its_event_loop_did() -> History:
    made = history(ran(1, 2), ran(5, 6, pid=OTHER, attempt=2))
    made.loops[CHILD] = [1.5]
    return made


@planted("effect is there 0 times")
def a_completed_job_without_its_row_after_a_rollback_of_its_own() -> History:
    made = history(ran(1, 2, "unclear"))
    made.enqueued[7] = "end_transaction"
    return made


@planted("effect is there 0 times")
def a_row_that_went_with_the_transaction_of_another_job() -> History:
    made = history(ran(1, 2))
    made.enqueued[7] = "write_alone"
    return made


@planted("a connection is left")
def what_the_run_saw_itself() -> History:
    made = history(ran(1, 2))
    made.problems.append("a connection is left")
    return made


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_violation_is_found(name: str) -> None:
    expected, make = PLANTED[name]

    found = check(make())

    assert any(expected in sentence for sentence in found), found


def test_a_worker_may_have_the_process_id_of_a_copy_that_is_gone() -> None:
    made = history(ran(1, 2))
    made.copies[CHILD] = 303

    assert check(made) == []


def test_a_killed_run_explains_the_next() -> None:
    made = history(ran(1, None), ran(2, 3, pid=OTHER, attempt=2))
    made.kills[CHILD] = [1.5]

    assert check(made) == []


def test_a_kill_after_an_outage_that_kept_the_outcome_from_being_stored_explains_the_next() -> None:
    made = history(ran(1, 2), ran(40, 41, pid=OTHER, attempt=2))
    made.outages = [Span(1.5, 25)]
    made.kills[CHILD] = [24]

    assert check(made) == []


def test_a_supervisor_that_was_stopped_for_long_explains_an_overlap() -> None:
    made = history(ran(1, 25), ran(16, 17, pid=OTHER, attempt=2))
    made.stops[SUPERVISOR] = [Span(2, 20)]

    assert check(made) == []


def test_a_supervisor_that_is_told_twice_to_leave_explains_the_next_run_of_what_it_handed_back() -> None:
    made = history(ran(1, 4, "broken off"), ran(4.1, 6, pid=OTHER))
    made.terms[SUPERVISOR] = [2, 3.9]

    assert check(made) == []


def test_the_end_of_its_event_loop_explains_the_next_run_of_what_it_cut_off() -> None:
    for first in (ran(1, None), ran(1, 2, "broken off")):
        made = history(first, ran(5, 6, pid=OTHER, attempt=2))
        made.loops[CHILD] = [1.5]

        assert check(made) == []


def test_a_job_that_broke_its_own_connection_may_be_completed_or_run_again() -> None:
    assert check(history(ran(1, 2, "unclear"))) == []
    assert check(history(ran(1, 2, "unclear"), ran(3, 4, attempt=2))) == []


WORKER = "00000000-0000-0000-0000-000000000007"


def holding(made: History, *, start: float = 10, end: float = 60) -> History:
    """Let the store say all the time that the worker holds job 7."""
    made.process_of[WORKER] = CHILD
    made.held = [(float(at), [(7, 1, WORKER)]) for at in range(int(start), int(end) + 1, 2)]
    return made


def test_a_claim_that_stands_still_is_found() -> None:
    killed = history(ran(11, None))
    killed.kills[CHILD] = [12]

    for made in (history(), history(ran(1, 11)), killed):
        [sentence] = idle_claims(holding(made))

        assert "Job 7 (quick): process 101 held claim 1" in sentence


def test_a_claim_stands_for_a_reason_while_its_job_runs_and_while_something_hinders_its_worker() -> None:
    hindered = history()
    hindered.outages = [Span(5, 50)]
    stopped = history()
    stopped.stops[SUPERVISOR] = [Span(20, 21)]
    orphaned = history()
    orphaned.kills[SUPERVISOR] = [12]

    for made in (history(ran(11, None)), history(ran(11, 59)), hindered, stopped, orphaned):
        assert list(idle_claims(holding(made))) == []
    assert list(idle_claims(holding(history(), end=30))) == []


def test_what_the_store_forgot_may_be_lost_and_is_counted() -> None:
    made = history()
    made.finals.clear()
    made.acknowledged[7] = 5.5
    made.forgotten = [Span(5, 9)]

    assert check(made) == []
    assert made.lost() == [7]


def test_what_a_transaction_enqueued_may_have_arrived_after_the_outage_in_which_it_committed() -> None:
    made = history()
    made.finals.clear()
    made.acknowledged[7], made.followed_up = 5.5, {7}
    made.outages, made.forgotten = [Span(5, 9)], [Span(18, 20)]

    assert check(made) == []


def test_an_outcome_that_the_store_forgot_explains_the_next_run_and_so_does_a_claim() -> None:
    for first in (ran(5, 6), ran(5.5, 30)):
        made = history(first, ran(12, 13, pid=OTHER, attempt=1))
        made.outages, made.forgotten = [Span(7, 9)], [Span(5, 9)]

        assert check(made) == []


def test_a_retry_needs_no_explanation() -> None:
    assert check(history(ran(1, 2, "again"), ran(3, 4, attempt=2))) == []


def test_notes_become_a_history() -> None:
    made = History()
    notes: list[dict[str, Any]] = [
        {"kind": "enqueued", "at": 1.0, "jobs": [7], "task": "quick", "arguments": []},
        {"kind": "start", "at": 2.0, "job": 7, "attempt": 1, "pid": CHILD, "queue": "default"},
        {"kind": "end", "at": 3.0, "job": 7, "attempt": 1, "pid": CHILD, "outcome": "returned"},
        {"kind": "kill", "at": 4.0, "pids": [CHILD], "by": "plan"},
        {"kind": "stopped", "at": 9.0, "since": 5.0, "pids": [CHILD]},
        {"kind": "outage", "at": 9.0, "since": 8.0},
        {"kind": "forgotten", "at": 9.0, "since": 6.0},
        {"kind": "loop", "at": 3.5, "pid": CHILD},
        {"kind": "copy", "at": 3.6, "pid": 303, "parent": CHILD},
        {"kind": "held", "at": 3.7, "claims": [[7, 1, WORKER]]},
        {"kind": "problem", "at": 3.8, "text": "It hurts."},
    ]

    made.add(reversed(notes))

    assert made.enqueued == {7: "quick"}
    assert made.executions[7] == [Execution(7, 1, CHILD, 2.0, end=3.0, outcome="returned")]
    assert made.kills[CHILD] == [4.0]
    assert made.stops[CHILD] == [Span(5.0, 9.0)]
    assert made.outages == [Span(8.0, 9.0)]
    assert made.forgotten == [Span(6.0, 9.0)]
    assert made.loops[CHILD] == [3.5]
    assert made.copies == {303: CHILD}
    assert made.held == [(3.7, [(7, 1, WORKER)])]
    assert made.problems == ["It hurts."]


def test_an_id_that_was_given_twice_is_found() -> None:
    made = history(ran(1, 2))

    made.add([{"kind": "enqueued", "at": 9.0, "jobs": [7], "task": "quick", "arguments": []}])

    assert check(made) == ["The id 7 was given twice."]


def test_one_seed_is_one_plan() -> None:
    for store in plan.WEIGHTS:
        assert plan.make(7, 120, store) == plan.make(7, 120, store) != plan.make(8, 120, store)
