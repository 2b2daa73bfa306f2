"""Results on their way into arguments and contexts, from a store that answers with what the test says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from djqueue import conf
from djqueue.exceptions import Discard, MissingResult
from djqueue.jobs.flows import DependencyRule, Neighbour
from djqueue.workflows.canvas import Canvas, chain, group
from djqueue.workflows.context import Child, Results
from djqueue.workflows.inputs import Upstreams, put_results
from djqueue.workflows.plan import plan
from djqueue.workflows.result import Result
from djqueue.workflows.workflow import Workflow
from tests.workflows.tasks import add, nothing, report, total

OK, ANY = DependencyRule.SUCCESS, DependencyRule.ANY_END


class Store:
    """Answers as an engine does, and counts the questions."""

    def __init__(self, *upstreams: Neighbour, parts: dict[int, list[tuple[str, Any]]] | None = None) -> None:
        self._upstreams = list(upstreams)
        self._parts = parts or {}
        self.asked = 0

    def upstreams(self, job_id: int) -> list[Neighbour]:
        self.asked += 1
        return self._upstreams

    def results(self, flow_id: int, *, after: int = 0, limit: int = 1000) -> list[tuple[int, str, str | None]]:
        self.asked += 1
        rows: list[tuple[int, str, str | None]] = [
            (id, state, json.dumps(value)) for id, (state, value) in enumerate(self._parts[flow_id], 1)
        ]
        return [row for row in rows if row[0] > after][:limit]


def done(id: int, name: str, value: Any, rule: DependencyRule = OK) -> Neighbour:
    return Neighbour(id, False, name, rule, "completed", json.dumps(value))


def failed(id: int, name: str, rule: DependencyRule = ANY, state: str = "discarded") -> Neighbour:
    return Neighbour(id, False, name, rule, state)


def called(work: Canvas | Workflow, place: int, store: Store) -> tuple[list[Any], dict[str, Any]]:
    """The arguments with which the job at this place of a plan is called."""
    job = plan(work, conf.PostgresOptions(), "default").jobs[place].job
    args, kwargs = json.loads(job.args), json.loads(job.kwargs)
    put_results(store, 17, job.meta, args, kwargs)  # type: ignore[arg-type]
    return args, kwargs


def test_a_chain_hands_the_result_on() -> None:
    assert called(chain(add.s(1), add.s(5)), 1, Store(done(1, "add", 3))) == ([3, 5], {})


def test_a_result_of_none_is_handed_on() -> None:
    store = Store(Neighbour(1, False, "nothing", OK, "completed", None))

    assert called(chain(nothing.s(), report.s("x")), 1, store) == ([None, "x"], {})


def test_a_callback_takes_the_results_in_the_order_of_the_group() -> None:
    store = Store(done(1, "add", 10), done(2, "add#2", 20), done(3, "add#3", 30))

    assert called(group(add.s(1), add.s(2), add.s(3)) | total.s(), 3, store) == ([[10, 20, 30]], {})


def test_nested_groups_keep_their_shape() -> None:
    store = Store(done(1, "add", 1), done(2, "add#2", 2), done(3, "add#3", 3))

    assert called(group(group(add.s(1), add.s(2)), add.s(3)) | total.s(), 3, store) == ([[[1, 2], 3]], {})


def test_results_deep_inside() -> None:
    workflow = Workflow("w").add("a", add, 1).add("b", add, 1)
    workflow.add("c", report.s([0, {"x": Result("a")}], last=[Result("b")]))
    store = Store(done(1, "a", "A"), done(2, "b", "B"))

    assert called(workflow, 2, store) == ([[0, {"x": "A"}]], {"last": ["B"]})


def test_the_result_of_a_job_that_existed_before() -> None:
    assert called(Workflow("w").add("a", report, Result(5)), 0, Store(done(5, "a", "old"))) == (["old"], {})


def test_ignored_failures_are_none_and_dropped_ones_are_left_out() -> None:
    store = Store(done(1, "add", 1, ANY), failed(2, "add#2"))

    for rule, expected in (("ignore", [1, None]), ("drop", [1])):
        members: Any = group(add.s(1), add.s(2), on_failure=rule)  # type: ignore[arg-type]
        assert called(members | total.s(), 2, store) == ([expected], {})


def test_a_dropped_single_result_is_none() -> None:
    work = chain(add.s(1), report.s(), on_failure="drop")

    assert called(work, 1, Store(failed(1, "add"))) == ([None], {})


@pytest.mark.parametrize("rule", ["fail", "ignore", "drop"])
def test_the_results_of_a_large_group(rule: Any) -> None:
    state = "completed" if rule == "fail" else "cancelled"
    rows = [("completed", number) for number in range(2499)] + [(state, None if rule != "fail" else 2499)]
    store = Store(Neighbour(9, True, "add", OK, "completed"), parts={9: rows})

    [values], _ = called(group([add.s(n) for n in range(2500)], on_failure=rule) | total.s(), 2500, store)

    last = {"fail": [2499], "ignore": [None], "drop": []}[rule]
    assert values == [*range(2499), *last]


def test_the_results_of_groups_in_a_large_group() -> None:
    store = Store(Neighbour(9, True, "add", OK, "completed"), parts={9: [("completed", n) for n in range(80)]})

    [values], _ = called(group(group(add.s(1), add.s(2)) for _ in range(40)) | total.s(), 80, store)

    assert values == [[2 * n, 2 * n + 1] for n in range(40)]


def test_the_upstreams_are_read_once() -> None:
    workflow = Workflow("w").add("a", add, 1).add("c", report, Result("a"), Result("a"), [Result("a")])
    store = Store(done(1, "a", "A"))

    called(workflow, 1, store)

    assert store.asked == 1


def test_a_job_without_inputs_asks_nothing() -> None:
    store = Store()

    called(Workflow("w").add("a", add, 1).add("b", add, 1, deps=["a"]), 1, store)

    assert store.asked == 0


def test_a_result_that_was_deleted_is_told_with_its_job() -> None:
    with pytest.raises(MissingResult, match=r"The result of job 1 \(add\) does not exist any more: the job is deleted"):
        called(chain(add.s(1), add.s(2)), 1, Store(failed(1, "add", OK, "deleted")))
    with pytest.raises(MissingResult, match="'add', whose result is an argument, is not among those"):
        called(chain(add.s(1), add.s(2)), 1, Store())
    with pytest.raises(MissingResult, match="The results of 'add' do not exist any more"):
        called(group(add.s(n) for n in range(60)) | total.s(), 60, Store())
    assert issubclass(MissingResult, Discard), "no retry brings a result back"


class TestContext:
    def test_results_by_name(self) -> None:
        store = Store(
            done(1, "a", "A"),
            failed(2, "b"),
            Neighbour(3, True, "many", OK, "completed"),
            parts={3: [("completed", 1), ("discarded", None)]},
        )

        results = Results(Upstreams(store, 17))  # type: ignore[arg-type]

        assert store.asked == 0, "they are read when they are used"
        assert dict(results) == {"a": "A", "b": None, "many": [1, None]}
        assert len(results) == 3

    def test_an_unknown_name_is_told_with_the_others(self) -> None:
        results = Results(Upstreams(Store(done(1, "a", "A")), 17))  # type: ignore[arg-type]

        with pytest.raises(KeyError, match="'z' is not among the jobs that this job waited for: a"):
            results["z"]

    def test_children(self) -> None:
        assert Child.of(done(1, "a", [1])) == ("1", "a", False, "completed", [1])
        assert Child.of(failed(2, "b")) == ("2", "b", False, "discarded", None)
        assert Child.of(Neighbour(3, True, "many", OK, "failed")) == ("3", "many", True, "failed", None)
