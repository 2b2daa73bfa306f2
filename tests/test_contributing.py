"""CONTRIBUTING.md: what it names exists, and the two ways through the source are those of the imports."""

from __future__ import annotations

import inspect
import itertools
import re
from typing import Any

import pytest

from djqueue.engines.postgres import single
from tests import readme
from tests.ledger import tasks

grimp = pytest.importorskip("grimp")  # installed with the linters, for the newest versions only

TEXT = (readme.ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SQL = "djqueue/engines/postgres/"


def test_every_file_and_package_that_it_names_exists() -> None:
    named = re.findall(r"`((?:djqueue|tests|sql|\.ci)/[\w./]*|[\w]+\.(?:py|md|toml))`", TEXT)

    assert len(named) > 40
    missing = [path for path in named if not any((readme.ROOT / prefix / path).exists() for prefix in ("", SQL))]
    assert missing == []


def test_every_package_is_in_its_table() -> None:
    rows = re.findall(r"^\| (`djqueue/[^|]*)\|", TEXT, flags=re.MULTILINE)
    listed = {part for row in rows for part in re.findall(r"`djqueue/(\w+)", row)}

    packages = {path.parent.name for path in (readme.ROOT / "djqueue").glob("*/__init__.py")}
    assert packages - {"migrations"} <= listed


@pytest.mark.django_db
def test_an_enqueue_passes_the_four_modules_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    passed: list[str] = []
    send = single.run_in_transaction

    def noted(*args: Any) -> Any:
        names = [frame.frame.f_globals["__name__"] for frame in reversed(inspect.stack(context=0))]
        passed.extend(name for name in names if name.startswith("djqueue."))
        return send(*args)

    monkeypatch.setattr(single, "run_in_transaction", noted)
    tasks.noop.enqueue()

    # The engine's module only holds the class whose verb single.py is.
    on_the_way = [name for name in dict.fromkeys(passed) if name != "djqueue.engines.postgres.engine"]
    assert [*on_the_way, send.__module__] == steps("From `Task.enqueue` to its SQL")


def test_from_the_fetch_to_the_ack_each_module_knows_the_next_and_none_knows_one_before() -> None:
    way = steps("From the fetch to the ack")
    graph = grimp.build_graph("djqueue", exclude_type_checking_imports=True)

    assert 4 <= len(way) <= 10
    for earlier, later in itertools.pairwise(way):
        assert graph.direct_import_exists(importer=earlier, imported=later), (earlier, later)
        assert not graph.chain_exists(importer=later, imported=earlier), (earlier, later)


def steps(title: str) -> list[str]:
    """The modules that CONTRIBUTING.md numbers below a title."""
    section = TEXT.partition(f"**{title}")[2].partition("\n\n")[2].partition("\n\n")[0]
    return [path.replace("/", ".") for path in re.findall(r"^\d\. `([\w/]+)\.py`", section, flags=re.MULTILINE)]
