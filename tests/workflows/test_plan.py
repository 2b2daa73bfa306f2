"""What is planned for a whole. No database: a plan is a pure function of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from djqueue import compat, conf
from djqueue.exceptions import InvalidArguments, InvalidWorkflow
from djqueue.jobs.flows import DependencyRule, FlowKind, OnFailure, Upstream, UpstreamKind
from djqueue.tasks.task import Task
from djqueue.workflows.canvas import chain, group
from djqueue.workflows.plan import Plan, plan
from djqueue.workflows.result import Result
from djqueue.workflows.workflow import Workflow
from tests.workflows.tasks import add, download, fail, nothing, report, total

OPTIONS = conf.PostgresOptions()
OK, ANY, FAILED = DependencyRule.SUCCESS, DependencyRule.ANY_END, DependencyRule.FAILURE


def planned(work: Any, **kwargs: Any) -> Plan:
    return plan(work, OPTIONS, "default", **kwargs)


def job(at: int, rule: DependencyRule = OK) -> Upstream:
    return Upstream(UpstreamKind.JOB, at, rule)


def part(at: int, rule: DependencyRule = OK) -> Upstream:
    return Upstream(UpstreamKind.FLOW, at, rule)


def graph(made: Plan) -> list[list[Upstream]]:
    return [list(each.upstreams) for each in made.jobs]


def own(made: Plan, place: int) -> dict[str, Any]:
    return json.loads(made.jobs[place].job.meta).get("flow", {})  # type: ignore[no-any-return]


def functions(made: Plan) -> list[str]:
    return [each.func.__name__ for each in made.tasks]


class TestChain:
    def test_each_item_waits_for_the_one_before_and_takes_its_result(self) -> None:
        made = planned(chain(add.s(1, 2), add.s(3), add.si(7)))

        assert graph(made) == [[], [job(0)], [job(1)]]
        assert [each.job.args for each in made.jobs] == ["[1,2]", "[null,3]", "[7]"]
        assert own(made, 0) == {"name": "add"}
        assert own(made, 1) == {"put": [[["args", 0], "add"]]}
        assert own(made, 2) == {}
        assert [flow.kind for flow in made.flows] == [FlowKind.WORKFLOW]
        assert {each.flow for each in made.jobs} == {0}
        assert made.ends == [2]

    def test_jobs_of_one_function_get_different_names(self) -> None:
        made = planned(chain(add.s(1), add.s(2), add.s(3)))

        assert made.names == {"add": 0, "add#2": 1}
        assert own(made, 2) == {"put": [[["args", 0], "add#2"]]}

    def test_a_rule_holds_for_each_edge(self) -> None:
        made = planned(chain(add.s(1), add.s(2), add.s(3), on_failure="ignore"))

        assert graph(made) == [[], [job(0, ANY)], [job(1, ANY)]]

    def test_options_of_a_signature_are_those_of_its_job(self) -> None:
        made = planned(chain(add.s(1).using(priority=7, queue_name="fast"), add.s(2).using(run_after=60)))

        assert (made.jobs[0].job.priority, made.jobs[0].job.queue) == (7, "fast")
        assert made.jobs[1].job.delay is not None


class TestGroup:
    def test_a_callback_waits_for_all_members_and_takes_the_list_of_results(self) -> None:
        made = planned(group(add.s(1), download.s("x")) | total.s(label="all"))

        assert graph(made) == [[], [], [job(0), job(1)]]
        assert own(made, 2) == {"put": [[["args", 0], {"list": ["add", "download"]}]]}
        assert made.jobs[2].job.args == "[null]"

    def test_each_member_takes_the_result_before_the_group(self) -> None:
        made = planned(add.s(1) | group(add.s(2), add.s(3)))

        assert graph(made) == [[], [job(0)], [job(0)]]
        assert [own(made, place)["put"] for place in (1, 2)] == [[[["args", 0], "add"]]] * 2
        assert made.ends == [1, 2]

    def test_a_member_may_be_a_chain_or_a_group(self) -> None:
        made = planned(group(chain(add.s(1), add.s(2)), group(add.s(3), add.s(4))) | total.s())

        assert graph(made) == [[], [job(0)], [], [], [job(1), job(2), job(3)]]
        assert own(made, 4)["put"] == [[["args", 0], {"list": ["add#2", {"list": ["add#3", "add#4"]}]}]]

    def test_dropped_results_are_left_out(self) -> None:
        made = planned(group(add.s(1), add.s(2), on_failure="drop") | total.s())

        assert graph(made)[2] == [job(0, ANY), job(1, ANY)]
        assert own(made, 2)["put"] == [[["args", 0], {"list": ["add", "add#2"], "drop": True}]]

    def test_a_large_group_is_counted_and_is_one_dependency(self) -> None:
        made = planned(group(add.s(number) for number in range(1000)) | total.s())

        assert len(made.flows) == 2
        assert (made.flows[1].kind, made.flows[1].whole) == (FlowKind.PART, 0)
        assert {each.flow for each in made.jobs[:1000]} == {1}
        assert made.jobs[1000].flow == 0
        assert graph(made)[1000] == [part(1)]
        assert own(made, 1000)["put"] == [[["args", 0], {"part": "add"}]]
        assert own(made, 0) == {}, "a member needs no name"

    def test_fifty_members_are_not_counted(self) -> None:
        made = planned(group(add.s(number) for number in range(50)) | total.s())

        assert len(made.flows) == 1

    def test_of_chains_in_a_large_group_only_the_last_jobs_are_counted(self) -> None:
        made = planned(group(add.s(number) | add.s(1) for number in range(60)) | total.s())

        assert [each.flow for each in made.jobs] == [0, 1] * 60 + [0]
        assert graph(made)[120] == [part(1)]

    def test_groups_in_a_large_group_keep_their_shape(self) -> None:
        made = planned(group(group(add.s(1), add.s(2)) for _ in range(40)) | total.s())

        assert own(made, 80)["put"] == [[["args", 0], {"part": "add", "shape": [[None, None]] * 40}]]

    def test_one_large_group_behind_another_shares_its_part(self) -> None:
        made = planned(group(add.s(n) for n in range(60)) | group(total.s() for _ in range(60)) | total.s())

        assert [flow.whole for flow in made.flows] == [None, 0, 0]
        assert {tuple(ups) for ups in graph(made)[60:120]} == {(part(1),)}
        assert graph(made)[120] == [part(2)]

    def test_compensation_runs_on_the_first_failure_of_a_group(self) -> None:
        made = planned(group(add.s(1), add.s(2), on_failure="compensate") | nothing.si())

        assert graph(made)[2] == [part(1, FAILED)]

    def test_compensation_has_no_result_to_take(self) -> None:
        with pytest.raises(InvalidWorkflow, match=r"Use total\.si"):
            planned(chain(add.s(1), total.s(), on_failure="compensate"))


class TestWorkflow:
    def test_jobs_are_stored_after_those_they_depend_on(self) -> None:
        workflow = Workflow("import")
        workflow.add("report", report, deps=["b", "a"])
        workflow.add("b", add, 2, deps=["a"])
        workflow.add("a", add, 1)

        made = planned(workflow)

        assert made.names == {"a": 0, "b": 1, "report": 2}
        assert graph(made) == [[], [job(0)], [job(1), job(0)]]
        assert own(made, 1) == {"name": "b"}
        assert (made.flows[0].name, made.flows[0].kind) == ("import", FlowKind.WORKFLOW)

    def test_a_result_is_a_dependency(self) -> None:
        workflow = Workflow("import").add("a", add, 1)
        workflow.add("b", report.s([Result("a"), {"deep": Result("a")}], last=Result("a")))

        made = planned(workflow)

        assert graph(made) == [[], [job(0)]]
        assert (made.jobs[1].job.args, made.jobs[1].job.kwargs) == ('[[null,{"deep":null}]]', '{"last":null}')
        assert own(made, 1)["put"] == [
            [["args", 0, 0], "a"],
            [["args", 0, 1, "deep"], "a"],
            [["kwargs", "last"], "a"],
        ]

    def test_results_of_chains_and_groups(self) -> None:
        workflow = Workflow("import")
        workflow.add("chain", chain(add.s(1), add.s(2)))
        workflow.add("group", group(add.s(1), add.s(2)))
        workflow.add("report", report, Result("chain"), Result("group"))

        made = planned(workflow)

        assert made.names == {"report": 4, "chain.add": 0, "chain.add#2": 1, "group.add": 2, "group.add#2": 3}
        assert own(made, 4)["put"] == [
            [["args", 0], "chain.add#2"],
            [["args", 1], {"list": ["group.add", "group.add#2"]}],
        ]

    def test_rules_of_the_workflow_the_job_and_the_edge(self) -> None:
        workflow = Workflow("import", on_failure="ignore").add("a", add, 1).add("b", add, 1).add("c", add, 1)
        workflow.add("d", report, deps={"a": None, "b": "fail"})
        workflow.add("e", report, Result("a"), deps=["b"], on_failure="drop")
        workflow.add("refund", nothing, deps={"a": "compensate"})

        made = planned(workflow)

        upstreams = {name: made.jobs[place].upstreams for name, place in made.names.items()}
        assert upstreams["d"] == [job(0, ANY), job(1)]
        assert upstreams["e"] == [job(1, ANY), job(0, ANY)]
        assert upstreams["refund"] == [job(0, FAILED)]

    def test_what_runs_only_after_a_failure_is_not_counted(self) -> None:
        """Not needed, it is cancelled: counted, it would make a workflow that completed look like one that failed."""
        workflow = Workflow("saga").add("pay", add, 1)
        workflow.add("refund", chain(nothing.si(), report.s()), deps={"pay": "compensate"})
        workflow.add("tell", report, deps=["refund"])
        workflow.add("close", report, deps=["refund", "pay"], on_failure="ignore")

        made = planned(workflow)

        assert [each.flow for each in made.jobs] == [0, None, None, None, 0]

    def test_compensation_for_stored_jobs_alone_is_counted(self) -> None:
        made = planned(Workflow("late").add("refund", nothing, deps={17: "compensate"}))

        assert [each.flow for each in made.jobs] == [0]

    def test_a_workflow_cannot_compensate(self) -> None:
        inner = Workflow("undo").add("a", nothing)
        with pytest.raises(InvalidWorkflow, match="a workflow cannot compensate"):
            planned(Workflow("saga").add("pay", add, 1).add("undo", inner, deps={"pay": "compensate"}))

    def test_cancel_is_a_rule_of_the_whole(self) -> None:
        made = planned(Workflow("import", on_failure="cancel").add("a", add, 1).add("b", add, Result("a")))

        assert made.flows[0].on_failure is OnFailure.CANCEL
        assert graph(made)[1] == [job(0)]

    def test_a_workflow_in_a_workflow_is_a_part(self) -> None:
        inner = Workflow("inner", on_failure="cancel").add("x", add, 1).add("y", add, Result("x"))
        workflow = Workflow("outer").add("first", add, 1).add("inner", inner, deps=["first"])
        workflow.add("last", report, Result("inner.y"), deps=["inner"])

        made = planned(workflow)

        assert made.names == {"first": 0, "inner.x": 1, "inner.y": 2, "last": 3}
        assert [(flow.name, flow.whole, flow.on_failure) for flow in made.flows] == [
            ("outer", None, OnFailure.GO_ON),
            ("inner", 0, OnFailure.CANCEL),
        ]
        assert [each.flow for each in made.jobs] == [0, 1, 1, 0]
        assert graph(made) == [[], [job(0)], [job(1)], [part(1), job(2)]]

    def test_jobs_that_exist_already(self) -> None:
        workflow = Workflow("late").add("a", report, Result(17), deps=[18])

        made = planned(workflow)

        assert graph(made) == [[Upstream(UpstreamKind.ID, 18), Upstream(UpstreamKind.ID, 17)]]
        assert own(made, 0) == {"name": "a", "put": [[["args", 0], 17]]}

    def test_very_many_dependencies_become_a_part_unless_their_results_are_read(self) -> None:
        workflow = Workflow("wide")
        for number in range(60):
            workflow.add(f"n{number}", add, number)
        workflow.add("last", report, Result("n3"), deps=[f"n{number}" for number in range(60)])

        made = planned(workflow)

        assert set(made.jobs[60].upstreams) == {job(3), part(1)}
        assert [each.flow for each in made.jobs].count(1) == 59

    def test_a_wait_for_a_signal_is_a_job_with_a_delay(self) -> None:
        workflow = Workflow("approval").wait_for_signal("approved", timeout="2 days")
        workflow.add("publish", report, Result("approved"))

        made = planned(workflow)

        assert made.jobs[0].job.task == "djqueue.workflows.signals.wait"
        assert made.jobs[0].job.delay is not None
        assert made.jobs[0].job.delay.days == 2
        assert graph(made) == [[], [job(0)]]

    def test_appended_jobs_are_a_part_of_the_stored_whole(self) -> None:
        made = planned(Workflow("more", unique=True).add("a", add, 1), whole_id=17)

        assert (made.flows[0].kind, made.flows[0].whole_id, made.flows[0].unique_key) == (FlowKind.PART, 17, None)

    def test_a_key_depends_on_name_and_value(self) -> None:
        keys = {Workflow(name, unique=key).unique_key for name in ("a", "b") for key in (True, "x", "y")}

        assert len(keys) == 6
        assert Workflow("a").unique_key is None
        assert Workflow("a", unique="x").unique_key == Workflow("a", unique="x").unique_key

    def test_thousands_of_jobs_in_a_row(self) -> None:
        workflow = Workflow("long").add("0", add, 0)
        for number in range(1, 3_000):
            workflow.add(str(number), add, Result(str(number - 1)))

        assert graph(planned(workflow))[2_999] == [job(2_998)]


class TestRefusals:
    def test_arguments_are_checked_with_the_result_counted_in(self) -> None:
        planned(add.s(1) | add.s(2))
        with pytest.raises(InvalidArguments, match=r"add\.s\(2, 3\): .*too many positional arguments"):
            planned(add.s(1) | add.s(2, 3))
        with pytest.raises(InvalidArguments, match="missing a required argument: 'x'"):
            planned(add.s())
        with pytest.raises(InvalidArguments, match=r"nothing\.s\(\)"):
            planned(add.s(1) | nothing.s())
        with pytest.raises(InvalidArguments, match="Job 'b'"):
            planned(Workflow("w").add("a", add, 1).add("b", add, Result("a"), 2, 3))

    def test_a_cycle_is_named(self) -> None:
        workflow = (
            Workflow("w").add("a", nothing, deps=["c"]).add("b", nothing, deps=["a"]).add("c", nothing, deps=["b"])
        )

        with pytest.raises(InvalidWorkflow, match=r"has a cycle: (a → c → b → a|b → a → c → b|c → b → a → c)"):
            planned(workflow)

    def test_a_job_cannot_wait_for_itself(self) -> None:
        with pytest.raises(InvalidWorkflow, match="cycle: a → a"):
            planned(Workflow("w").add("a", nothing, deps=["a"]))

    def test_unknown_names_are_told_with_the_similar_one(self) -> None:
        with pytest.raises(
            InvalidWorkflow, match=r"'b' of workflow 'w' depends on 'donwload'.*Did you mean 'download'\?"
        ):
            planned(Workflow("w").add("download", nothing).add("b", nothing, deps=["donwload"]))
        with pytest.raises(InvalidWorkflow, match="'inner' has no job 'z'"):
            planned(Workflow("w").add("inner", Workflow("i").add("x", nothing)).add("b", nothing, deps=["inner.z"]))

    def test_two_jobs_of_one_name(self) -> None:
        with pytest.raises(InvalidWorkflow, match="has a job 'a' already"):
            Workflow("w").add("a", nothing).add("a", nothing)

    def test_results_that_never_exist(self) -> None:
        inner = Workflow("i").add("x", nothing)
        with pytest.raises(InvalidWorkflow, match=r"'inner' is a workflow. Use one of its jobs"):
            planned(Workflow("w").add("inner", inner).add("b", report, Result("inner")))
        with pytest.raises(InvalidWorkflow, match="it runs only if 'a' fails"):
            planned(Workflow("w").add("a", nothing).add("b", report, Result("a"), deps={"a": "compensate"}))
        with pytest.raises(InvalidWorkflow, match="which only a job of a Workflow can"):
            planned(chain(add.s(Result("a")), add.s()))

    @pytest.mark.parametrize("dep", ["", None, True, -1, object(), "x" * 3 + "."])
    def test_dependencies_on_nothing(self, dep: Any) -> None:
        with pytest.raises(InvalidWorkflow):
            planned(Workflow("w").add("a", nothing, deps=[dep]))
        with pytest.raises(InvalidWorkflow):
            planned(Workflow("w").add("a", report, Result(dep)))
        with pytest.raises(InvalidWorkflow):
            planned(chain(report.s(Result(dep)), nothing.si()))

    def test_unique_jobs(self) -> None:
        with pytest.raises(InvalidWorkflow, match=r"is unique.*Workflow\(…, unique=True\)"):
            planned(chain(add.s(1).using(unique=True), add.s(2)))

    def test_other_backends(self) -> None:
        other = Task.of(add)
        object.__setattr__(copy := _copy(other), "backend", "other")

        with pytest.raises(InvalidWorkflow, match="runs on the backend 'other', and the others on 'default'"):
            planned(chain(add.s(1), copy.s(2)))

    def test_queues_that_deliver_at_most_once(self) -> None:
        options = conf.parse({"queues": {"once": {"delivery": "at_most_once"}}}, conf.PostgresOptions)

        with pytest.raises(InvalidWorkflow, match="'once', which delivers at most once"):
            plan(chain(add.s(1).using(queue_name="once"), add.s(2)), options, "default")

    def test_empty_workflows(self) -> None:
        with pytest.raises(InvalidWorkflow, match="'w' is empty"):
            planned(Workflow("w"))
        with pytest.raises(InvalidWorkflow, match="'i' is empty"):
            planned(Workflow("w").add("a", nothing).add("i", Workflow("i")))

    @pytest.mark.parametrize("name", ["", "a.b", "x" * 101, "a\n", 7])
    def test_names(self, name: Any) -> None:
        with pytest.raises(InvalidWorkflow, match="Invalid name of a job"):
            Workflow("w").add(name, nothing)

    def test_keyword_arguments_are_not_options(self) -> None:
        with pytest.raises(InvalidWorkflow, match=r"does not know y.*Pass keyword arguments of the task with task\.s"):
            Workflow("w").add("a", add, 1, y=2)

    def test_deps_that_are_not_a_list(self) -> None:
        with pytest.raises(InvalidWorkflow, match=r"Use a list, like deps=\['a'\]"):
            Workflow("w").add("b", nothing, deps="a")


def test_the_context_of_the_caller_travels_with_each_job() -> None:
    from django.utils import translation

    with translation.override("de"):
        made = planned(fail.si() | nothing.si())

    assert [json.loads(each.job.meta)["context"] for each in made.jobs] == [{"language": "de"}] * 2


def test_a_task_of_the_framework_can_be_added() -> None:
    theirs: Any = compat.Task(
        func=add.func, priority=0, queue_name="default", backend="default", run_after=None, takes_context=False
    )
    assert functions(planned(Workflow("w").add("a", theirs, 1))) == ["add"]


def test_a_group_of_twenty_thousand() -> None:
    made = planned(group(add.s(number) for number in range(20_000)) | total.s())

    assert len(made.jobs) == 20_001


def _copy(original: Task) -> Task:
    from copy import copy

    return copy(original)
