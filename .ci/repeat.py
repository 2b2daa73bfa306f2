#!/usr/bin/env python3
"""Run commands of the build, and a failed one once more, under the same conditions.

    repeat.py run NOTES [--again "OPTIONS"] -- COMMAND...    OPTIONS are added to the command when it is repeated
    repeat.py verdict NOTES                                  list what failed and then passed; exit 1 if that is too much

Tests kill real processes on machines that others use too, so some fail by chance. A command that fails twice fails the build
at once. What passes the second time is written to NOTES: each failed test of pytest by its name, another command as a whole.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

MOST_FLAKY = 3
"""More than these fail the build although all passed in the end: so many are no coincidence."""
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+::.+?)(?: - .*)?$", re.MULTILINE)


def main(arguments: list[str]) -> int:
    action, notes, *rest = arguments
    if action == "verdict":
        return verdict(Path(notes))
    options, command = rest[: rest.index("--")], rest[rest.index("--") + 1 :]
    return run(Path(notes), command, shlex.split(options[1]) if options else [])


def run(notes: Path, command: list[str], again: list[str]) -> int:
    """Run a command, once more if it fails, and return the last exit code."""
    code, output = run_shown(command)
    if code == 0:
        return 0
    failed = list(dict.fromkeys(_FAILED.findall(output))) or [shlex.join(command)]
    command = [*command, *again]
    print(f"=== failed with exit code {code}, once more: {shlex.join(command)}", flush=True)
    code, _ = run_shown(command)
    if code == 0:
        with notes.open("a") as file:
            file.writelines(f"{name}\n" for name in failed)
    return code


def run_shown(command: list[str]) -> tuple[int, str]:
    """Run a command and show its output as it comes; return its exit code and the output."""
    lines = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    return process.returncode, "".join(lines)


def verdict(notes: Path) -> int:
    flaky = notes.read_text().splitlines() if notes.exists() else []
    for name in flaky:
        print(f"failed, then passed: {name}")
    if len(flaky) > MOST_FLAKY:
        print(f"FAILED: {len(flaky)} failures passed only the second time; at most {MOST_FLAKY} are accepted.")
    return int(len(flaky) > MOST_FLAKY)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
