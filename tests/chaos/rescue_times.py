"""How long until the jobs of a killed worker run again, and what an outage does to running jobs.

::

    python -m tests.chaos.rescue_times [--kills 20]

Three supervisors with two processes each, under a load of short jobs that keeps about half of the slots busy.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from djqueue.contrib import embedded
from tests.chaos.ledger import DIRECTORY, Ledger, read


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.rescue_times")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    directory = options.keep or Path(tempfile.mkdtemp(prefix="djqueue-rescue-"))
    directory.mkdir(parents=True, exist_ok=True)
    try:
        with embedded.postgres(settings={"fsync": False, "max_connections": 200}) as server:
            return 0 if Trial(server, directory).run(options.kills) else 1
    finally:
        if options.keep is None:
            shutil.rmtree(directory, ignore_errors=True)


class Trial:
    def __init__(self, server: embedded.PostgresServer, directory: Path) -> None:
        os.environ.update(
            {"DATABASE_URL": server.url, "DJANGO_SETTINGS_MODULE": "tests.chaos.settings", DIRECTORY: str(directory)}
        )
        import django

        django.setup()
        from django.core.management import call_command
        from django.db import connection

        from tests.chaos.fleet import Fleet
        from tests.chaos.stores import Postgres

        call_command("migrate", verbosity=0)
        connection.close()
        self.server = server
        self.directory = directory
        self.fleet = Fleet(Postgres(server), directory, Ledger(directory), {**os.environ, "PYTHONWARNINGS": "default"})
        self.is_ok = True
        self._is_loading = threading.Event()
        self._is_over = False

    def run(self, kills: int) -> bool:
        load = threading.Thread(target=self._load)
        try:
            self.fleet.start()
            load.start()
            self._wait_for_workers()
            self.kill_children(kills)
            self.kill_machines(3)
            self._is_loading.clear()
            self.take_the_database_away(30)
            self.stop_a_supervisor(20)
            self.kill_a_supervisor()
        finally:
            self._is_over = True
            self._is_loading.set()
            load.join()
            self.fleet.kill()
        return self.is_ok

    def kill_children(self, kills: int) -> None:
        self._is_loading.set()
        times: list[float] = []
        for number in range(kills):
            self.fleet.wait(time.monotonic() + 3)
            member = self.fleet.members[number % 3]
            assert member is not None
            times += self._killed([member.children()[number // 3 % 2]])
        self._say("kill -9 of one worker under load, until a job of it runs again", times, limit=1.0)
        self._is_loading.clear()
        self._settle()
        starts: dict[int, int] = defaultdict(int)
        for note in read(self.directory):
            starts[note.get("job", 0)] += note["kind"] == "start"
        from djqueue.models import FinishedJob

        spent = [id for id, attempt in FinishedJob.objects.values_list("id", "attempt") if attempt > starts[id]]
        print(
            f"  jobs with an attempt spent and no start noted: {len(spent)} of {FinishedJob.objects.count()}",
            flush=True,
        )

    def kill_machines(self, kills: int) -> None:
        self._is_loading.set()
        times: list[float] = []
        for number in range(kills):
            self._wait_for_workers()
            self.fleet.wait(time.monotonic() + 5)
            member = self.fleet.members[number % 3]
            assert member is not None
            member.is_leaving = True
            times += self._killed([member.pid, *member.children()], wait=16)
            self.fleet._spawn(number % 3)
        self._say("kill -9 of supervisor and workers together", times, limit=14.0)

    def take_the_database_away(self, seconds: float) -> None:
        self._settle()
        jobs = self._start_naps([seconds / 2, seconds + 10], 10)
        self.server.stop("immediate")
        self.fleet.wait(time.monotonic() + seconds)
        self.server.start()
        back = time.monotonic()
        self._settle()
        self._tell(
            f"database away for {seconds:g} s, all acked {time.monotonic() - back:.1f} s after it was back", jobs, 1
        )

    def stop_a_supervisor(self, seconds: float) -> None:
        jobs = self._start_naps([25], 12)
        member = self.fleet.members[0]
        assert member is not None
        os.kill(member.pid, signal.SIGSTOP)
        self.fleet.wait(time.monotonic() + seconds)
        os.kill(member.pid, signal.SIGCONT)
        self._settle()
        self._tell(f"SIGSTOP of a supervisor for {seconds:g} s, jobs of 25 s", jobs, 2)

    def kill_a_supervisor(self) -> None:
        jobs = self._start_naps([15], 12)
        member = self.fleet.members[1]
        assert member is not None
        member.is_leaving = True
        os.kill(member.pid, signal.SIGKILL)
        self._settle()
        self._tell("kill -9 of a supervisor alone, jobs of 15 s", jobs, 1)

    def _load(self) -> None:
        from django.db import DatabaseError, InterfaceError, connection

        from tests.chaos import tasks

        while not self._is_over:
            self._is_loading.wait()
            try:
                tasks.nap.enqueue_many([([0.25], {})] * 10)
                tasks.quick.enqueue_many([([], {})] * 10)
            except (DatabaseError, InterfaceError):
                connection.close()
            time.sleep(0.1)
        connection.close()

    def _killed(self, pids: list[int], wait: float = 2.5) -> list[float]:
        """Kill, and return for each job that ran there how long it took until it ran again."""
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        killed = time.monotonic()
        self.fleet.wait(killed + wait)
        notes = sorted(read(self.directory), key=lambda note: note["at"])
        ended = {(note["job"], note["attempt"], note["pid"]) for note in notes if note["kind"] == "end"}
        interrupted = {
            note["job"]
            for note in notes
            if note["kind"] == "start"
            and note["pid"] in pids
            and (note["job"], note["attempt"], note["pid"]) not in ended
        }
        again: dict[int, float] = {}
        for note in notes:
            if note["kind"] == "start" and note["job"] in interrupted and note["at"] > killed:
                again.setdefault(note["job"], note["at"] - killed)
        return [again.get(job, float("inf")) for job in interrupted]

    def _start_naps(self, seconds: list[float], each: int) -> list[int]:
        from django.db import connection

        from djqueue.models import Job
        from tests.chaos import tasks

        self._wait_for_workers()
        jobs = [int(tasks.nap.enqueue(length).id) for length in seconds for _ in range(each)]
        while Job.objects.exclude(state="executing").exists():
            self.fleet.wait(time.monotonic() + 0.1)
        self.fleet.wait(time.monotonic() + 0.5)
        connection.close()
        return jobs

    def _tell(self, what: str, jobs: list[int], most: int) -> None:
        from djqueue.models import FinishedJob

        starts: dict[int, int] = defaultdict(int)
        for note in read(self.directory):
            if note["kind"] == "start":
                starts[note["job"]] += 1
        counts = [starts[job] for job in jobs]
        done = FinishedJob.objects.filter(pk__in=jobs, state="completed").count()
        is_ok = done == len(jobs) and max(counts) <= most
        self.is_ok &= is_ok
        print(
            f"{'ok  ' if is_ok else 'BAD '} {what}: {done} of {len(jobs)} completed, started once: {counts.count(1)},"
            f" twice: {counts.count(2)}, more often: {sum(count > 2 for count in counts)}",
            flush=True,
        )

    def _say(self, what: str, times: list[float], limit: float) -> None:
        times = sorted(times)
        at: Any = lambda share: times[min(len(times) - 1, int(len(times) * share))]  # noqa: E731
        is_ok = at(0.99) < limit
        self.is_ok &= is_ok
        print(
            f"{'ok  ' if is_ok else 'BAD '} {what}: {len(times)} jobs, p50 {at(0.5):.3f} s, p99 {at(0.99):.3f} s,"
            f" max {times[-1]:.3f} s (limit {limit:g} s)",
            flush=True,
        )

    def _settle(self) -> None:
        from django.db import DatabaseError, InterfaceError, connection

        from djqueue.models import Job

        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                if not Job.objects.exists():
                    break
            except (DatabaseError, InterfaceError):
                connection.close()
            self.fleet.wait(time.monotonic() + 0.2)
        connection.close()

    def _wait_for_workers(self) -> None:
        from djqueue.models import Worker

        while Worker.objects.filter(died_at=None, beat__gt=1).count() < 6:
            self.fleet.wait(time.monotonic() + 0.2)


if __name__ == "__main__":
    sys.exit(main())
