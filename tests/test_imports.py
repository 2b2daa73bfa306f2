"""Modules do not import each other in circles: the import graph of djqueue, with what is imported for type checking only."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import pytest

grimp = pytest.importorskip("grimp")  # installed with the linters, for the newest versions only


def circle_in(imports: dict[str, set[str]]) -> list[str]:
    """The modules of one circle, the first of them again at the end; empty if there is none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_modules_import_each_other() -> None:
    graph = grimp.build_graph("djqueue", exclude_type_checking_imports=False, cache_dir=None)

    assert "djqueue.backends.base" in graph.modules
    assert "djqueue.stores" in graph.find_modules_directly_imported_by("djqueue.backends.base")
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    assert circle_in(imports) == [], "each of these imports the one before it, or is imported by it"


@pytest.mark.parametrize(
    ("imports", "expected"),
    [
        ({"a": {"b"}, "b": {"c"}}, 0),
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}}, 4),
        ({"a": {"a"}}, 2),
    ],
)
def test_a_circle_is_found(imports: dict[str, set[str]], expected: int) -> None:
    assert len(circle_in(imports)) == expected
