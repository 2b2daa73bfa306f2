"""What a worker is given by whoever starts it: standard streams, a temporary directory, settings."""

from __future__ import annotations

import logging
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from djqueue.runtime import logs
from djqueue.runtime.claims import ClaimBlock
from tests.backlog import states
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

    def test_t11_what_is_printed_arrives(self) -> None:
        tasks.say.enqueue("grüß Gott")

        with worker("--drain") as running:
            assert running.wait() == 0, running.log

        assert running.log.count("grüß Gott") == 2


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
