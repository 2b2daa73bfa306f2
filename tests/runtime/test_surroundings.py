"""What a worker is given by whoever starts it: standard streams, a temporary directory, settings."""

from __future__ import annotations

import logging
import os
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from djqueue.jobs.states import JobState
from djqueue.runtime import logs, parent_settings
from djqueue.runtime.claims import ClaimBlock
from tests.backlog import engine, states, stored
from tests.ledger import tasks
from tests.processes import environment, worker

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("store")]


class TestStreams:
    @pytest.mark.parametrize("unbuffered", ["", "1"])
    @pytest.mark.parametrize("kind", ["closed pipe", "full disk"])
    def test_t11_a_job_that_prints_does_not_fail_because_nobody_reads_it(self, kind: str, unbuffered: str) -> None:
        tasks.say.enqueue_many(((f"line {number}",), {}) for number in range(5))
        reader, writer = os.pipe()
        os.close(reader)
        with open("/dev/full", "wb") as full, open(writer, "wb") as pipe:
            stream = full if kind == "full disk" else pipe
            code = subprocess.call(
                [sys.executable, "-m", "django", "runworker", "--drain", "-v", "0"],
                env={**environment(), "PYTHONUNBUFFERED": unbuffered},
                stdout=stream,
                stderr=stream,
                timeout=90,
            )

        assert states() == {"completed": 5}
        assert code == 0

    def test_t11_a_worker_runs_without_standard_streams(self) -> None:
        tasks.say.enqueue("unheard")

        with worker("--drain", prefix=["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]) as running:
            assert running.wait() == 0

        assert states() == {"completed": 1}

    def test_t11_what_is_printed_arrives(self) -> None:
        tasks.say.enqueue("grüß Gott")

        with worker("--drain") as running:
            assert running.wait() == 0, running.log

        assert running.log.count("grüß Gott") == 2


class TestSettings:
    def test_t08_a_worker_in_a_test_never_works_on_another_database(self, settings: Any, store: str) -> None:
        result = tasks.noop.enqueue()
        names = ["DATABASES['default']"]
        if store == "valkey":
            settings.TASKS = {"default": {**settings.TASKS["default"], "QUEUES": ["default"]}}
            names.append("TASKS['default']")

        with pytest.raises(CommandError) as refused:
            call_command("runworker", drain=True)

        assert all(name in str(refused.value) for name in names), refused.value
        assert stored(result).state == JobState.AVAILABLE
        assert not engine().workers()

    def test_t08_settings_that_have_no_module_are_refused_in_a_sentence(self, tmp_path: Path) -> None:
        script = tmp_path / "single.py"
        script.write_text(
            "import django\n"
            "from django.conf import settings\n"
            "from tests import settings as written\n"
            "settings.configure(**{name: value for name, value in vars(written).items() if name.isupper()})\n"
            "django.setup()\n"
            "from django.core.management import execute_from_command_line\n"
            "execute_from_command_line(['single.py', 'runworker', '--drain'])\n"
        )

        run = subprocess.run(
            [sys.executable, script],
            env={**environment(), "PYTHONPATH": os.getcwd(), "PYTHONWARNINGS": "ignore"},
            capture_output=True,
            text=True,
            timeout=90,
        )

        assert run.returncode == 1
        assert "settings.configure()" in run.stderr
        assert "Traceback" not in run.stderr

    def test_t08_settings_that_look_at_the_command_line_are_the_same_in_worker_processes(self) -> None:
        result = tasks.cache_location.enqueue()

        with worker("--drain", env={"DJANGO_SETTINGS_MODULE": "tests.faults.settings"}) as running:
            assert running.wait() == 0, running.log

        assert stored(result).result == "workers"

    def test_t08_a_worker_outside_of_the_main_thread_is_refused_in_a_sentence(self) -> None:
        with ThreadPoolExecutor(1) as pool, pytest.raises(CommandError, match="main thread"):
            pool.submit(call_command, "runworker", drain=True).result()


def test_t08_what_django_and_a_login_change_by_themselves_is_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    here = SimpleNamespace(CACHES={}, TASKS={})
    monkeypatch.setattr(parent_settings, "settings", here)
    default = {"ENGINE": "django.db.backends.postgresql", "NAME": "shop", "HOST": "db"}
    here.DATABASES = {"default": {**default, "USER": "v-1"}, "replica": {**default, "HOST": "db-2"}}
    theirs = parent_settings.digests("default")

    here.DATABASES = {
        "default": {**default, "USER": "v-2", "PORT": "", "ATOMIC_REQUESTS": False},
        "replica": {**default, "HOST": "db-3"},
        "none": {"ENGINE": "django.db.backends.dummy"},
    }

    assert parent_settings.differences(theirs, "default") == []
    here.DATABASES["default"]["HOST"] = "elsewhere"
    assert parent_settings.differences(theirs, "default") == ["DATABASES['default']"]


class TestLogging:
    def test_t12_logging_is_left_alone(self) -> None:
        tasks.noop.enqueue()

        env = {"DJANGO_SETTINGS_MODULE": "tests.faults.settings", "DJQUEUE_TEST_LOGGING": "1"}
        with worker("--drain", "-v", "2", env=env) as running:
            assert running.wait() == 0, running.log

        assert states() == {"completed": 1}
        assert "job.stop" not in running.log  # the root logger says WARNING


class TestClaimBlock:
    def test_t68_a_block_without_room_is_an_error_of_a_sentence_and_never_a_hole(self) -> None:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        # The end of a process by SIGXFSZ is switched off by the interpreter.
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
        try:
            with pytest.raises(OSError, match="too large"):
                ClaimBlock.create()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    def test_t68_a_block_has_its_memory_from_the_start(self) -> None:
        block = ClaimBlock.create()

        status = os.fstat(block.fd)

        assert status.st_blocks * 512 >= status.st_size
        block.close()

    def test_t68_a_worker_needs_no_temporary_directory(self, tmp_path: Path) -> None:
        tasks.noop.enqueue()

        env = {name: str(tmp_path / "absent") for name in ("TMPDIR", "TEMP", "TMP")}
        with worker("--drain", env=env) as running:
            assert running.wait() == 0, running.log

        assert states() == {"completed": 1}


def test_t12_a_logger_without_any_handler_is_shown_on_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.Logger("djqueue")
    monkeypatch.setattr(logging, "getLogger", lambda name="": logger if name == "djqueue" else logging.Logger(name))

    logs.configure(2)

    assert (logger.level, len(logger.handlers)) == (logging.DEBUG, 1)
