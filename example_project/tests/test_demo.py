"""The two commands as a user starts them: in a process of their own, with real workers."""

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from django.db import connection

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
            [sys.executable, str(MANAGE), "demo", "--small", "--deadline", "70"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

        assert run.returncode == 0, run.stdout + run.stderr
        assert "2,900 airports imported, every value as in the data set" in run.stdout
        assert "2 discarded as planned" in run.stdout
        assert "login admin, password admin" in run.stdout


def test_the_demo_does_its_work_with_its_jobs_in_redis(environment):
    run = subprocess.run(
        [sys.executable, str(MANAGE), "demo", "--small", "--deadline", "100"],
        env={**environment, "DJQUEUE_BACKEND": "redis"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert run.returncode == 0, run.stdout + run.stderr
    assert "2,900 airports imported, every value as in the data set" in run.stdout
    assert "2 discarded as planned" in run.stdout
    assert "DJQUEUE_BACKEND=redis python3 run.py serve" in run.stdout
    assert not Job.objects.exists()
    assert not FinishedJob.objects.exists()


def test_the_demo_says_what_was_not_done_in_time_and_fails(environment):
    run = subprocess.run(
        [sys.executable, str(MANAGE), "demo", "--small", "--deadline", "0"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert run.returncode == 1
    assert "The deadline passed with jobs to do" in run.stderr


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
