"""The two commands as a user starts them: in a process of their own, with real workers."""

import os
import pty
import re
import signal
import subprocess
import sys
import termios
import urllib.request
from collections import Counter
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

import pytest
from django.db import connection
from PIL import Image

from airports import dataset
from demo.jobs import Tally
from demo.show import Patience
from djqueue.models import FinishedJob, Job

MANAGE = Path(__file__).resolve().parent.parent / "manage.py"

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def environment(var) -> dict[str, str]:
    database = connection.settings_dict
    url = "postgresql://{USER}:{PASSWORD}@{HOST}:{PORT}/{NAME}".format(**database)
    return {**os.environ, "DATABASE_URL": url, "FERNWEH_VAR": str(var), "DEBUG": "1"}


def children_of(pid: int) -> list[int]:
    """All living descendants, whatever process group they are in."""
    listing = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(child): int(parent) for child, parent in map(str.split, listing.splitlines())}
    found = [pid]
    for ancestor in found:
        found.extend(child for child, parent in parents.items() if parent == ancestor)
    return found[1:]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_demo_does_its_work_twice(environment):
    for _ in range(2):
        run = subprocess.run(
            [sys.executable, str(MANAGE), "demo", "--small"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=170,
            check=False,
        )

        assert run.returncode == 0, run.stdout + run.stderr
        assert "2,900 airports imported, every value as in the data set" in run.stdout
        assert "2 discarded as planned" in run.stdout
        assert "login admin, password admin" in run.stdout


def test_the_demo_does_its_work_with_its_jobs_in_redis(environment):
    run = subprocess.run(
        [sys.executable, str(MANAGE), "demo", "--small"],
        env={**environment, "DJQUEUE_BACKEND": "redis"},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )

    assert run.returncode == 0, run.stdout + run.stderr
    assert "2,900 airports imported, every value as in the data set" in run.stdout
    assert "2 discarded as planned" in run.stdout
    assert "DJQUEUE_BACKEND=redis python3 run.py serve" in run.stdout
    assert not Job.objects.exists()
    assert not FinishedJob.objects.exists()


def screen_of(output: str) -> list[str]:
    """The lines that a terminal shows after this output: cursor up, erase line and carriage return are obeyed."""
    lines, row = [""], 0
    for part in re.split(r"(\x1b\[\d*[A-Za-z]|\x1b\[\?\d+[hl]|\x1b\[[\d;]*m|\r|\n)", output):
        if part == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif part.endswith("A") and part.startswith("\x1b"):
            row -= int(part[2:-1] or 1)
        elif part.endswith("K") and part.startswith("\x1b"):
            lines[row] = ""
        elif part and not part.startswith(("\x1b", "\r")):
            lines[row] += part
    return lines


def test_t34_the_demo_shows_one_progress_bar_in_a_terminal(environment):
    parent, child = pty.openpty()
    termios.tcsetwinsize(child, (30, 100))
    with subprocess.Popen(
        [sys.executable, str(MANAGE), "demo", "--small"],
        env={**environment, "TERM": "xterm"},
        stdin=child,
        stdout=child,
        stderr=subprocess.STDOUT,
    ) as run:
        os.close(child)
        output = b""
        with suppress(OSError):  # the other side has ended
            while chunk := os.read(parent, 65536):
                output += chunk
    os.close(parent)

    lines = screen_of(output.decode())
    assert run.returncode == 0, "\n".join(lines)
    assert len([line for line in lines if "━" in line and "jobs" in line]) == 1, "\n".join(lines)
    assert len(lines) < 40, "\n".join(lines)


def test_t34_slow_work_does_not_make_the_demo_fail(monkeypatch):
    now = 0.0
    monkeypatch.setattr("demo.show.time.monotonic", lambda: now)
    patience = Patience(60)

    for ended in range(20):
        assert not patience.has_ended(Tally({"task": Counter(completed=ended, available=20 - ended)}))
        now += 59

    assert not patience.has_ended(Tally({"task": Counter(completed=19, available=1)}))
    now += 2
    assert patience.has_ended(Tally({"task": Counter(completed=19, available=1)}))


def test_the_demo_says_what_was_not_done_and_fails_when_nothing_happens_any_more(environment):
    run = subprocess.run(
        [sys.executable, str(MANAGE), "demo", "--small", "--patience", "0"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )

    assert run.returncode == 1
    assert "No job has ended for 0 seconds, although there is work: " in run.stderr


def test_t35_the_first_page_that_serve_announces_is_full(environment, var):
    process = subprocess.Popen(
        [sys.executable, str(MANAGE), "serve"],
        env={**environment, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        [address] = [
            line.split()[-1] for line in takewhile(lambda line: "Admin:" not in line, process.stdout) if "Site:" in line
        ]
        with urllib.request.urlopen(address, timeout=20) as response:  # noqa: S310  ours
            page = response.read().decode()
        pictures = re.findall(r"/media/[^'\")]+", page)
        for picture in pictures:
            with urllib.request.urlopen(f"{address.rstrip('/')}{picture}", timeout=20) as response:  # noqa: S310
                assert response.status == 200
        with Image.open(var / "media" / "world.png") as world:
            dots = world.getchannel("A").histogram()
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)

    assert f"<strong>{len(dataset.airports()):,}</strong> airports" in page.replace("\u202f", ",").replace(
        "&thinsp;", ","
    )
    assert sum("postcards/" in picture for picture in pictures) >= 12
    assert sum("world.png" in picture for picture in pictures) == 1
    assert sum(dots[1:]) > 10_000, "the map was drawn before the import"


def test_serve_answers_and_takes_its_children_along(environment):
    process = subprocess.Popen(
        [sys.executable, str(MANAGE), "serve"],
        env={**environment, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "Stop with Ctrl-C" in line:
                break
        [address] = [line.split()[-1] for line in lines if "Site:" in line]
        children = children_of(process.pid)
        with urllib.request.urlopen(f"{address}bookings/new/", timeout=20) as response:  # noqa: S310  ours
            assert b"Book a flight" in response.read()
        assert len(children) >= 3, "the site, the supervisor and its worker"
    finally:
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=60)[0]

    assert process.returncode == 0, "".join(lines) + rest
    assert not [pid for pid in children if is_alive(pid)]
