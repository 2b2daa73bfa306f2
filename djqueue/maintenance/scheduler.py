"""Enqueue the jobs of the crontab.

It runs in the supervisor of ``runworker``, on the leader, and alone in ``runcron``, without a lease. The store accepts each
tick once, so additional schedulers cost a query each and never a duplicate job.

The supervisor runs no job, but the scheduler imports the ``tasks`` modules of the project, as ``manage.py check`` would: a
job needs the options of its task (queue, attempts, keys), an entry in the database may name only a registered task, and
the crontab of the code is declared nowhere else. The import happens in the scheduler's own thread, once, and only on the
leader; a heartbeat waits for it no longer than for any other thread. The alternatives are worse: one more process beside
the workers would use memory in every installation, and a worker process would tie the schedule to user code. Projects with
heavy imports in ``tasks`` modules start workers with ``--no-cron`` and one ``runcron``.

The code of all schedulers together decides what the crontab is, see ``declarations.py``. Entries of modules that failed to
import are not changed.

The receivers of ``task_enqueued`` are not called for these jobs: that would run user code beside the heartbeats.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from djqueue import compat, telemetry
from djqueue.cron.entry import CronEntry, NewTick
from djqueue.cron.planning import Step, first_time, step
from djqueue.cron.schedule import InvalidSchedule, Schedule
from djqueue.crontab import new_job, rule_for
from djqueue.engines.protocol import CronStore
from djqueue.exceptions import EngineBusy, EngineUnavailable, InvalidJob, UnknownTask
from djqueue.jobs.records import LIVE_ONLY, NewJob
from djqueue.maintenance.declarations import Declarations
from djqueue.service import Service

LOOK_SECONDS = 1.0
"""Interval between two checks for changes of the crontab; due entries have a timer."""
BATCH_LIMIT = 200
"""Maximum number of nominal times of one entry in one run: the times it has missed must not delay other entries."""
HISTORY = timedelta(days=7)
PRUNE_SECONDS = 600.0
REBOOT_PAUSE = timedelta(minutes=1)
"""Schedulers that start within this time of each other start ``@reboot`` once."""
FOLLOW_SECONDS = 5.0
"""Interval at which a scheduler that is not the leader, and has read its code, looks for entries that the leader skips."""
FOLLOW_PAUSE = timedelta(seconds=5)
"""An entry that is this late was skipped by the leader."""
_ASIDE_SECONDS = 30.0


class Scheduler(Service):
    name = "scheduler"

    def __init__(self, engine: CronStore, *, store: str, is_leader: Callable[[], bool] = lambda: True) -> None:
        """``store`` is the name of the engine's store: tasks whose jobs are stored elsewhere have no entries here."""
        super().__init__()
        self._engine = engine
        self._is_leader = is_leader
        self._is_synchronised = False
        self._declarations = Declarations(engine, store)
        self._followed = 0.0
        self._reboot_at: datetime | None = None
        """When this scheduler started, until all ``@reboot`` entries have run; then None."""
        self._schedules: dict[int, tuple[tuple[str, str], Schedule]] = {}
        self._aside: dict[int, float] = {}
        self._pruned = time.monotonic()

    def run_once(self, now: datetime | None = None) -> float:
        """Act on every due entry; return the seconds until the next time, one second at most."""
        leads = self._is_leader()
        if not leads:
            self._is_synchronised = False
            if not self._declarations.is_read or time.monotonic() - self._followed < FOLLOW_SECONDS:
                return LOOK_SECONDS
            self._followed = time.monotonic()
        if leads and not self._is_synchronised:
            self._declarations.read(now)
            self._reboot_at = self._engine.due(now=now).now
            self._is_synchronised = True
        else:
            self._declarations.renew(now, leads=leads)
        if leads and self._reboot_at is not None:
            self._start_reboots(now)
        due = self._engine.due(now=now)
        pause = LOOK_SECONDS if due.next_in is None else min(LOOK_SECONDS, max(0.0, due.next_in))
        monotonic = time.monotonic()
        for entry in due.entries:
            if self._aside.get(entry.id, 0.0) > monotonic or not self._is_mine(entry, due.now, leads):
                continue
            try:
                if self._advance(entry, due.now, now):
                    pause = 0.0
            except EngineBusy:
                # An open transaction holds its unique key or its previous job. Only this entry is delayed.
                self._aside[entry.id] = monotonic + LOOK_SECONDS
            except EngineUnavailable:
                raise
            except Exception as error:
                # One entry must never delay the others.
                self._aside[entry.id] = monotonic + _ASIDE_SECONDS
                telemetry.emit(
                    "djqueue.cron.failure", logging.ERROR, exc_info=error, entry=entry.name, error=str(error)
                )
        if not leads:
            return LOOK_SECONDS
        self._prune(now)
        self.last_run = time.monotonic()
        return pause

    def on_stop(self) -> None:
        self._engine.close()

    def _is_mine(self, entry: CronEntry, at: datetime, leads: bool) -> bool:
        """Return whether to act on a due entry: the leader acts on those that its code declares, others on those that it skips."""
        if leads:
            return not self._declarations.is_left_to_others(entry)
        is_late = entry.next_at is None or at - entry.next_at >= FOLLOW_PAUSE
        return is_late and self._declarations.has(entry)

    def _start_reboots(self, now: datetime | None) -> None:
        """Run the ``@reboot`` entries, unless another scheduler has just done so; those that are held are retried with the next look."""
        at = self._reboot_at
        assert at is not None
        self._reboot_at = None
        for entry in self._engine.entries():
            last = entry.last_nominal_at
            if (
                entry.is_reboot
                and entry.state == "active"
                and self._is_mine(entry, at, True)
                and (last is None or at - last > REBOOT_PAUSE)
            ):
                try:
                    is_done = self._act(entry, Step(at, None), now) is not None
                except EngineBusy:
                    is_done = False
                if not is_done:
                    self._reboot_at = at

    # What is due

    def _advance(self, entry: CronEntry, at: datetime, now: datetime | None) -> bool:
        """Act on the due times of an entry; return whether there are more."""
        try:
            schedule = self._schedule(entry)
        except InvalidSchedule as error:
            # Written into the database without validation. It is logged and retried from time to time; other entries continue.
            self._aside[entry.id] = time.monotonic() + _ASIDE_SECONDS
            telemetry.emit("djqueue.cron.invalid", logging.ERROR, entry=entry.name, error=str(error))
            return False
        nominal = first_time(entry, schedule)
        if nominal is None or nominal > at:
            self._engine.plan(entry, nominal, now=now)
            return nominal is not None
        for _ in range(BATCH_LIMIT):
            taken = step(entry, schedule, nominal, at)
            following = self._act(entry, taken, now)
            if following is None:
                return False
            entry = following
            if entry.next_at is None or entry.next_at > at:
                # The next look returns how long to sleep.
                return True
            nominal = entry.next_at
        return True

    def _act(self, entry: CronEntry, taken: Step, now: datetime | None) -> CronEntry | None:
        """Act on one nominal time; return the entry as it is afterwards, or None if it has to be read again."""
        job, skip, rule = None, taken.skip, LIVE_ONLY
        if not skip:
            try:
                job, rule = self._job(entry, taken.nominal_at), rule_for(entry)
            except (UnknownTask, InvalidJob, compat.InvalidTask, TypeError, ValueError) as error:
                if self._declarations.is_better_known(entry):
                    # Another scheduler has the matching code, newer or older, and can make the job.
                    self._aside[entry.id] = time.monotonic() + _ASIDE_SECONDS
                    return None
                skip = _reason(error)
                telemetry.emit("djqueue.cron.refused", logging.ERROR, entry=entry.name, error=str(error))
        tick = NewTick(entry, taken.nominal_at, taken.next_at, skip, taken.missed_from)
        ticked = self._engine.tick(tick, job, rule=rule, now=now)
        if ticked.outcome in ("stale", "held"):
            return None
        telemetry.emit(
            f"djqueue.cron.{ticked.outcome}",
            entry=entry.name,
            nominal_at=taken.nominal_at.isoformat(),
            job=ticked.job_id,
            reason=ticked.reason,
        )
        runs = entry.runs + (ticked.outcome == "enqueued")
        if entry.definition.max_runs is not None and runs >= entry.definition.max_runs:
            return None
        return replace(entry, last_nominal_at=taken.nominal_at, next_at=taken.next_at, runs=runs)

    def _job(self, entry: CronEntry, nominal_at: datetime) -> NewJob:
        job = new_job(entry, {"entry": entry.name, "nominal_at": nominal_at.isoformat()})
        if not entry.definition.jitter_seconds:
            return job
        jitter = timedelta(seconds=random.uniform(0, entry.definition.jitter_seconds))  # noqa: S311  no secret
        return job._replace(delay=(job.delay or timedelta(0)) + jitter)

    def _schedule(self, entry: CronEntry) -> Schedule:
        rule = (entry.definition.expression, entry.definition.timezone)
        known = self._schedules.get(entry.id)
        if known is None or known[0] != rule:
            known = self._schedules[entry.id] = (rule, Schedule(*rule))
        return known[1]

    def _prune(self, now: datetime | None) -> None:
        if time.monotonic() - self._pruned >= PRUNE_SECONDS:
            self._pruned = time.monotonic()
            self._engine.prune(HISTORY, now=now)


def _reason(error: Exception) -> str:
    return "unknown task" if isinstance(error, UnknownTask) else f"invalid: {error}"[:200]
