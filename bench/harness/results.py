"""The file that a comparison writes after every run, so that one that was stopped goes on where it was."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.harness.figures import Figure
from bench.harness.installation import ROOT

FORMAT = 1


@dataclass
class Results:
    path: Path | None
    about: dict[str, Any]
    """Machine, commit, servers, settings."""
    peers: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Versions, durability, notes; ``problem`` when the peer could not be had at all."""
    runs: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def load(cls, path: Path) -> Results:
        content = json.loads(path.read_text())
        if content.get("format") != FORMAT:
            raise SystemExit(f"{path} was written by another version of the benchmark. Choose another file.")
        return cls(path, content["about"], content["peers"], content["runs"])

    @classmethod
    def open(cls, path: Path | None, about: dict[str, Any], *, is_fresh: bool) -> Results:
        """Go on with the file if it tells of the same code on the same machine, else begin one."""
        if path is None or is_fresh or not path.exists():
            return cls(path, about)
        old = cls.load(path)
        for key in ("machine", "commit", "seconds", "scale"):
            if old.about.get(key) != about[key]:
                raise SystemExit(
                    f"{path} is about another {key} ({old.about.get(key)!r}, now {about[key]!r})."
                    " Choose another file, or begin anew with --fresh."
                )
        old.about = {**about, "begun": old.about["begun"]}
        old.runs = [run for run in old.runs if "problem" not in run]  # whoever starts it again has mended something
        return old

    def save(self) -> None:
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_name(f"{self.path.name}.tmp")
        content = {"format": FORMAT, "about": self.about, "peers": self.peers, "runs": self.runs}
        new.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
        new.rename(self.path)

    def has(self, peer: str, scenario: str, repeat: int) -> bool:
        return any((run["peer"], run["scenario"], run["repeat"]) == (peer, scenario, repeat) for run in self.runs)

    def failures(self, peer: str, scenario: str) -> int:
        return sum("problem" in run for run in self.runs if (run["peer"], run["scenario"]) == (peer, scenario))

    def add(self, run: dict[str, Any]) -> None:
        self.runs.append(run)
        self.save()

    def cells(self) -> dict[tuple[str, str], Cell]:
        grouped: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
        for run in self.runs:
            grouped[run["peer"], run["scenario"]].append(run)
        return {key: Cell(runs) for key, runs in grouped.items()}

    def names(self) -> list[str]:
        return list(self.peers)


class Cell:
    """All runs of one peer in one scenario."""

    def __init__(self, runs: Iterable[dict[str, Any]]) -> None:
        runs = list(runs)
        self.good = [run for run in runs if "value" in run]
        self.problems = [run["problem"] for run in runs if "problem" in run]

    def figure(self, key: str = "value") -> Figure | None:
        values = [run[key] for run in self.good if run.get(key) is not None]
        return Figure.of(values) if values else None


def machine() -> str:
    """Name the machine by what counts for a measurement, and not by its name."""
    model = ""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        model = platform.processor()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores {model or platform.machine()}, {memory:.0f} GiB, {platform.system()}"


def commit() -> str:
    """Return the commit of this checkout, with a mark when files differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        # Only what can change a figure: results and notes may be written meanwhile.
        changed = git(
            "status", "--porcelain", "--untracked-files=no", "--", "djqueue", "bench/*.py", "bench/peers", "run.py"
        )
        return git("rev-parse", "--short=10", "HEAD") + ("+changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
