"""Workflows in real workers: what runs, with which arguments, and how it ends."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction

from djqueue import Batch, Result, Workflow, chain, compat, group
from djqueue.exceptions import InvalidJob, InvalidWorkflow
from djqueue.jobs.states import JobState
from djqueue.models import Job
from djqueue.tasks.results import TaskResult
from djqueue.workflows.handle import EnqueuedWorkflow
from tests.ledger.models import Entry
from tests.processes import drain
from tests.workflows.tasks import (
    add,
    adouble,
    alook,
    download,
    fail,
    grow,
    in_async_steps,
    in_own_transaction,
    in_rolled_back_step,
    in_stale_step,
    in_steps,
    look,
    report,
    total,
)

pytestmark = pytest.mark.django_db(transaction=True)


def ended(result: TaskResult) -> tuple[str, Any]:
    """State and result of a job now."""
    result.refresh()
    value = result.return_value if result.job.state is JobState.COMPLETED else None
    return str(result.job.state), value


def end_of(workflow: EnqueuedWorkflow, name: str | None = None) -> tuple[str, Any]:
    return ended(workflow.get_result(name))


def labels() -> list[str]:
    return list(Entry.objects.order_by("id").values_list("label", flat=True))


def test_chains_and_groups_hand_their_results_on() -> None:
    one = chain(add.s(1, 2), add.s(10), adouble.s(), add.si(7)).enqueue()
    two = (group(add.s(1), add.s(2) | add.s(10), adouble.s(4)) | total.s()).enqueue()
    three = (add.s(1) | group(add.s(2), adouble.s()) | report.s() | report.s("x")).enqueue()
    wide = (group(add.s(number) for number in range(120)) | total.s(label="all")).enqueue()
    nested = (group(group(add.s(1), add.s(2)), add.s(3)) | report.s()).enqueue()

    drain()

    assert end_of(one) == ("completed", 7)
    assert end_of(two) == ("completed", 1 + 12 + 8)
    assert end_of(three) == ("completed", [[[[[3, 2]], {}], "x"], {}])
    assert end_of(wide) == ("completed", sum(range(120)))
    assert end_of(nested) == ("completed", [[[[1, 2], 3]], {}])
    for each, count in ((one, 4), (two, 5), (three, 5), (wide, 121)):
        status = each.status()
        assert status is not None
        assert (status.total, status.completed, status.failed_at) == (count, count, None)
        assert status.finished_at is not None


def test_a_graph_runs_with_results_deep_in_its_arguments_and_in_its_context() -> None:
    inner = Workflow("inner").add("x", add, 1).add("y", add, Result("x"), 5)
    workflow = Workflow("graph")
    workflow.add("download", download, "a.txt").add("numbers", group(add.s(1), add.s(2))).add("inner", inner)
    workflow.add("report", report.s([{"deep": Result("download")}], last=Result("numbers")), deps=["inner"])
    workflow.add("look", look, Result("inner.y"), deps=["download"])
    workflow.add("alook", alook, Result("inner.y"), deps=["download"])

    stored = workflow.enqueue()
    drain()

    assert end_of(stored, "report") == ("completed", [[[{"deep": "content of a.txt"}]], {"last": [1, 2]}])
    state, seen = end_of(stored, "look")
    assert (state, seen["args"], seen["workflow"]) == ("completed", [6], "graph")
    assert seen["results"] == {"download": "content of a.txt", "inner.y": 6}
    assert sorted(seen["children"]) == [["download", "completed"], ["inner.y", "completed"]]
    state, seen = end_of(stored, "alook")
    assert (state, seen["args"], seen["workflow"]) == ("completed", [6], "graph")
    assert seen["results"] == {"download": "content of a.txt", "inner.y": 6}


def test_what_dependents_do_after_a_failure() -> None:
    workflow = Workflow("failing").add("fail", fail)
    workflow.add("stopped", report, Result("fail")).add("stopped_too", report, deps=["stopped"])
    workflow.add("ignores", report, Result("fail"), on_failure="ignore")
    workflow.add("undo", report, "undone", deps={"fail": "compensate"})
    stored = workflow.enqueue()
    dropped = (group(add.s(1), fail.s(), add.s(3), on_failure="drop") | report.s()).enqueue()
    ignored = (group(add.s(1), fail.s(), add.s(3), on_failure="ignore") | report.s()).enqueue()
    undone = (group([add.s(1), fail.s(), add.s(3)], on_failure="compensate") | report.si("undo")).enqueue()
    fine = (group([add.s(1), add.s(3)], on_failure="compensate") | report.si("undo")).enqueue()
    cancelled = Workflow("cancelled", on_failure="cancel").add("fail", fail)
    cancelled.add("later", add.using(run_after=3600), 1)
    rest = cancelled.enqueue()

    drain()

    assert end_of(stored, "fail")[0] == "discarded"
    assert end_of(stored, "stopped")[0] == "cancelled"
    assert end_of(stored, "stopped_too")[0] == "cancelled"
    assert end_of(stored, "ignores") == ("completed", [[None], {}])
    assert end_of(stored, "undo") == ("completed", [["undone"], {}])
    assert end_of(dropped) == ("completed", [[[1, 3]], {}])
    assert end_of(ignored) == ("completed", [[[1, None, 3]], {}])
    assert end_of(undone) == ("completed", [["undo"], {}])
    assert end_of(fine)[0] == "cancelled"
    status = fine.status()
    assert status is not None
    assert (status.total, status.completed, status.failed_at) == (2, 2, None), "what was not needed did not fail"
    assert end_of(rest, "later")[0] == "cancelled"


def test_a_workflow_is_part_of_the_callers_transaction() -> None:
    with transaction.atomic():
        stored = (add.s(1) | add.s(2)).enqueue()
        transaction.set_rollback(True)
    assert stored.status() is None

    with transaction.atomic():
        stored = (add.s(1) | add.s(2)).enqueue()

    status = stored.status()
    assert status is not None
    assert status.total == 2
    assert stored.get_result().job.state is JobState.SUSPENDED
    with pytest.raises(compat.TaskResultDoesNotExist):
        stored.get_result("nothing")


def test_nothing_is_stored_of_a_workflow_with_a_mistake() -> None:
    with pytest.raises(InvalidWorkflow):
        chain(add.s(1), add.s(2).using(unique=True)).enqueue()

    assert not Job.objects.exists()


def test_a_unique_workflow_is_stored_once_while_it_is_unfinished() -> None:
    first = Workflow("only", unique=True).add("a", add, 1).enqueue()
    second = Workflow("only", unique=True).add("a", add, 1).enqueue()
    other = Workflow("only", unique="b").add("a", add, 1).enqueue()

    assert (second.id, second.was_duplicate, first.was_duplicate) == (first.id, True, False)
    assert other.id != first.id
    drain()
    assert Workflow("only", unique=True).add("a", add, 1).enqueue().id not in (first.id, other.id)


def test_a_running_job_adds_to_its_workflow() -> None:
    stored = Workflow("growing").add("grow", grow, 3).enqueue()

    drain()

    state, last = end_of(stored, "grow")
    assert state == "completed"
    assert ended(compat.default_task_backend.get_result(last)) == ("completed", 3)  # type: ignore[arg-type]
    status = stored.status()
    assert status is not None
    assert (status.total, status.completed) == (5, 5)
    assert status.finished_at is not None


def test_steps_are_done_once_however_often_the_job_runs() -> None:
    result, in_event_loop = in_steps.enqueue(), in_async_steps.enqueue()
    rolled_back, stale = in_rolled_back_step.enqueue(), in_stale_step.enqueue()
    transactional = (add.s(3, 4) | in_own_transaction.s()).enqueue()

    drain()

    assert ended(result) == ("completed", [["a", 1], "b", None])
    assert ended(in_event_loop) == ("completed", ["a", "b"])
    assert ended(rolled_back) == ("completed", "attempt 2")
    assert end_of(transactional) == ("completed", 7)
    assert sorted(labels()) == [
        *("attempt 2", "first", "first", "ran", "second", "second", "third"),
        "transaction 2",
    ]
    stale.refresh()
    assert not stale.job.state.is_final, "nothing was stored under the claim that is lost"


def test_a_batch_of_slices_calls_back() -> None:
    read = []

    def items() -> Any:
        for number in range(12_000):
            read.append(number)
            yield (number,), {}

    fine = Batch("fine", on_success=look.s("all"), on_failure=look.s("failure"), on_finish=look.s("finish"))
    stored = fine.add_many(add, items()).add(add, 1, y=2).enqueue()
    bad = Batch("bad", on_success=look.s("all"), on_failure=look.s("failure"), on_finish=look.s("finish"))
    failed = bad.add(add, 1).add(fail.s()).enqueue()
    empty = Batch("empty", on_finish=look.s("finish")).enqueue()

    drain()

    assert len(read) == 12_000
    status = stored.status()
    assert status is not None
    assert (status.total, status.completed) == (12_001, 12_001)
    assert end_of(stored, "on_success")[1]["args"] == ["all"]
    assert end_of(stored, "on_success")[1]["workflow"] == "fine"
    assert end_of(stored, "on_finish")[1]["args"] == ["finish"]
    assert end_of(stored, "on_failure")[0] == "cancelled"
    assert [end_of(failed, name)[0] for name in failed.job_ids] == ["cancelled", "completed", "completed"]
    assert end_of(empty, "on_finish")[0] == "completed"


def test_an_open_batch_grows_until_it_is_closed() -> None:
    stored = Batch("open", on_finish=look.s()).add(add, 1).enqueue(is_open=True)
    drain()
    stored.add(add, 2)
    stored.add_many(add, (((number,), {}) for number in range(3)))
    drain()

    assert end_of(stored, "on_finish")[0] == "suspended"
    assert stored.close()
    assert not stored.close()
    drain()

    assert end_of(stored, "on_finish")[0] == "completed"
    status = stored.status()
    assert status is not None
    assert (status.total, status.completed) == (5, 5)
    with pytest.raises(InvalidJob):
        stored.add(add, 3)


def test_a_signal_completes_what_waits_for_it_and_a_timeout_fails_it() -> None:
    def approval(timeout: float) -> EnqueuedWorkflow:
        workflow = Workflow("approval").wait_for_signal("approved", timeout=timeout)
        return workflow.add("publish", report, Result("approved")).enqueue()

    signalled, late = approval(3600), approval(0.5)

    assert signalled.signal("approved", {"by": "ada"}, by="ada")
    assert not signalled.signal("approved", {"by": "bob"}), "the first one wins"
    assert not signalled.signal("rejected")
    drain()

    assert end_of(signalled, "publish") == ("completed", [[{"by": "ada"}], {}])
    assert end_of(late, "approved")[0] in ("scheduled", "discarded")
