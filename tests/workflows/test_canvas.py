"""Signatures, chains and groups as values."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from djqueue.exceptions import ForeignBackend, InvalidWorkflow
from djqueue.workflows.canvas import Chain, Group, chain, group
from tests.workflows.tasks import add, nothing, total


def test_a_signature_says_what_it_calls() -> None:
    assert repr(add.s(1, y=2)) == "add.s(1, y=2)"
    assert repr(add.si(1)) == "add.si(1)"
    assert repr(group(add.s(1), add.s(2), on_failure="drop") | total.s()) == (
        "chain(group(add.s(1), add.s(2), on_failure='drop'), total.s())"
    )


def test_signatures_are_values() -> None:
    assert add.s(1, y=[2]) == add.s(1, y=[2])
    assert add.s(1) != add.si(1)
    assert {add.s(1, y=[2]): "x"}[add.s(1, y=[2])] == "x"
    assert copy.deepcopy(add.s(1, y=[2])) == add.s(1, y=[2])


def test_using_returns_a_copy_with_other_options() -> None:
    signature = add.s(1)

    changed = signature.using(priority=5)

    assert changed.task.priority == 5
    assert changed.args == (1,)
    assert signature.task.priority == 0


def test_pipes_make_one_flat_chain() -> None:
    piped = add.s(1) | add.s(2) | (group(add.s(3), add.s(4)) | total.s())

    assert isinstance(piped, Chain)
    assert [type(item).__name__ for item in piped.items] == ["Signature", "Signature", "Group", "Signature"]


def test_a_chain_with_a_rule_of_its_own_stays_one_item() -> None:
    piped = chain(add.s(1), add.s(2), on_failure="ignore") | total.s()

    assert [type(item).__name__ for item in piped.items] == ["Chain", "Signature"]


def test_a_generator_makes_a_group() -> None:
    made = group(add.s(number) for number in range(3))

    assert isinstance(made, Group)
    assert made.members == (add.s(0), add.s(1), add.s(2))


@pytest.mark.parametrize("make", [chain, group])
def test_empty_ones_are_refused(make: Any) -> None:
    empty: Any
    for empty in ((), ([],)):
        with pytest.raises(InvalidWorkflow, match="it is empty"):
            make(*empty)


def test_a_task_without_arguments_is_refused_with_a_hint() -> None:
    with pytest.raises(InvalidWorkflow, match=r"Invalid item 1 of group\(\).*Write task\.s"):
        group(add.s(1), nothing)
    with pytest.raises(TypeError):
        add.s(1) | nothing


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(
        InvalidWorkflow, match="Invalid on_failure 'retry': use 'fail', 'ignore', 'drop' or 'compensate'"
    ):
        group(add.s(1), on_failure="retry")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["dummy.DummyBackend", "immediate.ImmediateBackend"])
def test_backends_of_the_framework_are_refused(kind: str, settings: object) -> None:
    from djqueue import compat

    settings.TASKS = {"default": {"BACKEND": f"{compat.FRAMEWORK}.backends.{kind}"}}  # type: ignore[attr-defined]

    with pytest.raises(ForeignBackend, match="Chains and groups need a backend of djqueue"):
        (add.s(1) | add.s(2)).enqueue()


def test_a_task_may_have_parameters_of_any_name() -> None:
    assert nothing.s(self=1, task=2, args=3).kwargs == {"self": 1, "task": 2, "args": 3}
