"""What a worker does at a signal, at whatever moment it comes and whatever the store does."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.db import connection

from djqueue.jobs.states import JobState
from tests import stores
from tests.backlog import engine, stored
from tests.ledger import tasks
from tests.ledger.models import Entry
from tests.processes import WorkerProcess, environment, eventually, worker
from tests.proxy import Proxy, proxy

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("store")]


class Wire:
    """A proxy before the store, and the environment of workers that go through it."""

    def __init__(self, running: Proxy, env: dict[str, str]) -> None:
        self.proxy = running
        self.env = env


@pytest.fixture
def wire(store: str) -> Iterator[Wire]:
    if store == "postgres":
        settings: dict[str, Any] = connection.settings_dict
        host, port = settings["HOST"], int(settings["PORT"])
    else:
        url = urlsplit(stores.valkey())
        host, port = str(url.hostname), int(url.port or 6379)
    with proxy(host, port) as running:
        if store == "postgres":
            env = environment(running.port)
        else:
            env = {"REDIS_URL": stores.valkey().replace(f":{port}", f":{running.port}")}
        yield Wire(running, env)


class TestSilentStore:
    def test_t58_a_stop_is_bounded_although_the_store_says_nothing(self, wire: Wire) -> None:
        tasks.nap.enqueue("job", 600)
        with worker(env={**wire.env, "DJQUEUE_SHUTDOWN_TIMEOUT": "2"}) as running:
            eventually(lambda: Entry.objects.exists(), explain=lambda: running.log)

            wire.proxy.swallow()
            running.stop()
            running.wait(
                40
            )  # two seconds and a few more; a silent statement alone would take forty, and several in a row

            wire.proxy.flow()
        # Another one takes over what could not be given back.
        with worker() as other:
            eventually(lambda: Entry.objects.count() == 2, 40, lambda: other.log)

    def test_t58_a_second_signal_does_not_wait_for_the_store(self, wire: Wire) -> None:
        tasks.nap.enqueue("job", 600)
        with worker(env={**wire.env, "DJQUEUE_SHUTDOWN_TIMEOUT": "600"}) as running:
            eventually(lambda: Entry.objects.exists(), explain=lambda: running.log)

            wire.proxy.swallow()
            running.stop()
            running.wait_for_log("supervisor.stopping")
            running.stop()
            running.wait(30)

            wire.proxy.flow()

    def test_t59_a_stop_while_a_silent_store_is_waited_for_is_orderly(self, wire: Wire) -> None:
        wire.proxy.swallow()
        with worker(env=wire.env) as running:
            until_it_hears(running)
            running.stop()
            assert running.wait(30) == 0, running.log
            wire.proxy.flow()


class TestEarlySignals:
    @pytest.mark.parametrize("store", ["postgres"], indirect=True)
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
    def test_t59_a_signal_that_comes_as_early_as_it_is_heard_ends_the_worker_in_good_order(
        self, number: signal.Signals
    ) -> None:
        with worker() as running:
            until_it_hears(running)
            running.stop(number)
            assert running.wait() == 0, running.log
        assert "Traceback" not in running.log

    def test_t59_a_stop_does_not_wait_for_a_slow_import(self) -> None:
        env = {"DJANGO_SETTINGS_MODULE": "tests.faults.settings", "DJQUEUE_TEST_SLOW": "1"}
        with worker("--no-cron", env=env | {"DJQUEUE_SHUTDOWN_TIMEOUT": "600"}) as running:
            running.wait_for_log("The slow import has begun.")
            running.stop()
            assert running.wait() == 0, running.log
        assert not engine().workers()


class TestHangup:
    @pytest.mark.parametrize("is_group", [False, True], ids=["supervisor", "group"])
    def test_t10_sighup_is_heard_as_sigterm_is(self, is_group: bool) -> None:
        result = tasks.nap.enqueue("job", 2)
        with worker() as running:
            eventually(lambda: Entry.objects.exists(), explain=lambda: running.log)
            if is_group:
                os.killpg(running.process.pid, signal.SIGHUP)
            else:
                running.stop(signal.SIGHUP)
            assert running.wait() == 0, running.log

        assert (stored(result).state, stored(result).attempt) == (JobState.COMPLETED, 1)

    @pytest.mark.parametrize("store", ["postgres"], indirect=True)
    def test_t10_nohup_is_respected(self) -> None:
        with worker(prefix=["nohup"]) as running:
            running.wait_for_log("worker.start")
            os.killpg(running.process.pid, signal.SIGHUP)
            result = tasks.noop.enqueue()
            eventually(lambda: stored(result).state == JobState.COMPLETED, explain=lambda: running.log)
            running.stop()
            assert running.wait() == 0, running.log


CONTAINER = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]


@pytest.mark.skipif(
    not shutil.which("unshare") or subprocess.run([*CONTAINER, "true"], capture_output=True).returncode != 0,
    reason="needs the right to make a PID namespace",
)
@pytest.mark.parametrize("store", ["postgres"], indirect=True)
class TestFirstProcess:
    def test_t09_pid_1_waits_for_orphans_and_leaves_its_workers_to_whom_they_belong(self) -> None:
        result = tasks.leave_orphans.enqueue(12)
        with worker(prefix=CONTAINER) as running:
            eventually(lambda: stored(result).state == JobState.COMPLETED, explain=lambda: running.log)
            first = first_process(running)
            worker_process = [pid for pid in children(first) if b"djqueue.runtime.child" in command(pid)]
            eventually(lambda: children(first) == worker_process, explain=lambda: running.log)

            os.kill(worker_process[0], signal.SIGKILL)
            running.wait_for_log("worker.start", count=2)
            os.kill(first, signal.SIGTERM)
            assert running.wait() == 0, running.log
        assert "was killed by SIGKILL" in running.log

    def test_t09_pid_1_hears_a_signal_before_its_command_is_loaded(self) -> None:
        env = {"DJANGO_SETTINGS_MODULE": "tests.faults.settings", "DJQUEUE_TEST_SLOW_MODELS": "1"}
        with worker(prefix=CONTAINER, env=env) as running:
            running.wait_for_log("The models are being loaded.")
            os.kill(first_process(running), signal.SIGTERM)
            assert running.wait() == 0, running.log


def until_it_hears(running: WorkerProcess) -> None:
    """Wait for the first moment at which SIGTERM is handled."""

    def hears() -> bool:
        status = Path(f"/proc/{running.process.pid}/status").read_text()
        [caught] = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")]
        return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)

    eventually(hears, explain=lambda: running.log)


def first_process(running: WorkerProcess) -> int:
    [pid] = children(running.process.pid)
    return pid


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.parametrize("command", ["runworker", "runcron"])
def test_stop_signals_during_the_shutdown_of_the_interpreter_do_not_change_the_exit_code(command: str) -> None:
    env = {"DJANGO_SETTINGS_MODULE": "tests.faults.settings", "DJQUEUE_TEST_STOP_AT_EXIT": "1"}
    with worker(env=env, command=command) as running:
        running.wait_for_log("worker.start" if command == "runworker" else "Ctrl-C to stop")

        running.stop()

        assert running.wait() == 0, running.log
