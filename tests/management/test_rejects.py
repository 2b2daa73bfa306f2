"""The bad lines that ``bulkinsert`` keeps: none is lost, nor anything else."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from django.core.management import CommandError

from tests.defaults import default_store
from tests.management.test_bulkinsert import COUNT, run, stored, write

__all__ = ["default_store"]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("default_store")]


@pytest.mark.parametrize("other", ["the file itself", "a hard link", "a symbolic link"])
def test_the_file_that_is_read_is_not_overwritten_by_its_rejects(tmp_path: Path, other: str) -> None:
    path, rejects = Path(write(tmp_path / "a.jsonl", [1], "?")), tmp_path / "other"
    if other == "the file itself":
        rejects = path
    elif other == "a hard link":
        rejects.hardlink_to(path)
    else:
        rejects.symlink_to(path)

    with pytest.raises(CommandError, match="is the input file"):
        run(COUNT, str(path), "--continue-on-error", "--rejects", str(rejects))

    assert (path.read_text(), stored()) == ("[1]\n?\n", [])


def test_rejects_of_an_earlier_run_are_not_overwritten(tmp_path: Path) -> None:
    path, rejects = write(tmp_path / "a.jsonl", [1], "?"), tmp_path / "rejects"
    rejects.write_text("!")

    with pytest.raises(CommandError, match="another name for --rejects, or remove"):
        run(COUNT, path, "--continue-on-error", "--rejects", str(rejects))

    assert (rejects.read_text(), stored()) == ("!", [])


@pytest.mark.parametrize("name", ["empty", "/dev/null"])
def test_rejects_may_go_where_nothing_is_lost(tmp_path: Path, name: str) -> None:
    path, rejects = write(tmp_path / "a.jsonl", [1], "?"), tmp_path / name
    rejects.touch()

    with pytest.raises(SystemExit):
        run(COUNT, path, "--continue-on-error", "--rejects", str(rejects))

    assert stored() == [([1], {})]


@pytest.mark.parametrize("count", [1, 20_000])
def test_rejects_that_cannot_be_written_mean_that_nothing_is_stored(tmp_path: Path, count: int) -> None:
    path = write(tmp_path / "a.jsonl", [1], *["?"] * count, [2])

    with pytest.raises(CommandError, match=r"Nothing was stored\. /dev/full cannot be written"):
        run(COUNT, path, "--continue-on-error", "--rejects", "/dev/full", "--batch-size", "1")

    assert stored() == []


def test_rejects_of_a_run_that_did_not_read_to_the_end_are_removed(tmp_path: Path) -> None:
    path, rejects = tmp_path / "a.jsonl.gz", tmp_path / "rejects"
    path.write_bytes(gzip.compress(b"?\n" * 5)[:-4])

    with pytest.raises(CommandError, match="Nothing was stored"):
        run(COUNT, str(path), "--continue-on-error", "--rejects", str(rejects))

    assert not rejects.exists()


def test_rejects_of_csv_are_mended_and_run_with_the_same_command(tmp_path: Path) -> None:
    path, rejects = write(tmp_path / "a.csv", "note,n", "a,1", '"b\nb",x', "c", '"d"d,3'), tmp_path / "rejects.csv"
    options = ("--map", "n=number:int")

    with pytest.raises(SystemExit):
        run(COUNT, path, *options, "--continue-on-error", "--rejects", str(rejects))

    assert rejects.read_text() == 'note,n\n"b\nb",x\nc\n"d"d,3\n'
    rejects.write_text(rejects.read_text().replace("x", "2").replace("c\n", "c,3\n").replace('"d"d', "d"))
    run(COUNT, str(rejects), *options)
    assert [kwargs["number"] for _, kwargs in stored()] == [1, 2, 3, 3]
