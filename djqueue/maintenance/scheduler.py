"""Enqueue the jobs of the crontab.

Where it runs: in the supervisor of ``runworker``, under the leader, and alone in ``runcron``, without any lease. A tick
is taken once by the store, so more schedulers cost a query each and never a job.

The supervisor runs no job, but the scheduler imports the ``tasks`` modules of the project, as ``manage.py check`` would:
a job must be made as its task says (queue, attempts, keys), an entry of the database may name only a registered task, and
what the code says about the crontab stands nowhere else. It happens in the scheduler's own thread, once, and only where it
leads; a beat waits for an import no longer than for any other thread. The alternative, a process for it beside the workers,
would cost everybody its memory; a worker child as the home would tie the clock to user code. Who has heavy imports in
``tasks`` modules starts workers with ``--no-cron`` and one ``runcron``.

What the code of all schedulers says decides what the crontab is, see ``declarations.py``. Entries of modules that failed to
import are left alone.

The receivers of ``task_enqueued`` are not called for these jobs: that would run user code beside the beats.
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
"""How often it looks for changes of the crontab; for what is due it has a timer."""
BATCH_LIMIT = 200
"""Nominal times of one entry in one run: what it has missed must not keep the others waiting."""
HISTORY = timedelta(days=7)
PRUNE_SECONDS = 600.0
REBOOT_PAUSE = timedelta(minutes=1)
"""Schedulers that start within this time of each other start ``@reboot`` once."""
FOLLOW_SECONDS = 5.0
"""How often a scheduler without the lead looks at what the leader leaves, if it has read its code."""
FOLLOW_PAUSE = timedelta(seconds=5)
"""What is so late was left."""
_ASIDE_SECONDS = 30.0


class Scheduler(Service):
    name = "scheduler"

    def __init__(self, engine: CronStore, *, store: str, is_leader: Callable[[], bool] = lambda: True) -> None:
        """``store`` names the engine's: tasks whose jobs live elsewhere have no entries here."""
        super().__init__()
        self._engine = engine
        self._is_leader = is_leader
        self._is_synchronised = False
        self._declarations = Declarations(engine, store)
        self._followed = 0.0
        self._reboot_at: datetime | None = None
        """When this scheduler started, while something that is due at a start has not run."""
        self._schedules: dict[int, tuple[tuple[str, str], Schedule]] = {}
        self._aside: dict[int, float] = {}
        self._pruned = time.monotonic()
        self.last_run: float | None = None
        """When it last acted upon all that was due, as the leader, by the monotonic clock."""

    def run_once(self, now: datetime | None = None) -> float:
        """Act upon everything that is due; return the seconds until the next time, one second at most."""
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
                # An open transaction holds its unique key or its previous job. Only this entry is late for it.
                self._aside[entry.id] = monotonic + LOOK_SECONDS
            except EngineUnavailable:
                raise
            except Exception as error:
                # One entry must never keep the others from their time.
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
        """Whether to act upon an entry that is due: the leader upon all that its code has, others upon what it leaves."""
        if leads:
            return not self._declarations.is_left_to_others(entry)
        is_late = entry.next_at is None or at - entry.next_at >= FOLLOW_PAUSE
        return is_late and self._declarations.has(entry)

    def _start_reboots(self, now: datetime | None) -> None:
        """Run what is due at a start, unless another scheduler did so just now; again with the next look what is held."""
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
        """Act upon the due times of an entry; return whether there are more."""
        try:
            schedule = self._schedule(entry)
        except InvalidSchedule as error:
            # Edited in past all checks. It is told and looked at again now and then; the others go on.
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
                # Another look tells how long to sleep.
                return True
            nominal = entry.next_at
        return True

    def _act(self, entry: CronEntry, taken: Step, now: datetime | None) -> CronEntry | None:
        """Act upon one nominal time; return the entry as it is afterwards, None if it is to be read anew."""
        job, skip, rule = None, taken.skip, LIVE_ONLY
        if not skip:
            try:
                job, rule = self._job(entry, taken.nominal_at), rule_for(entry)
            except (UnknownTask, InvalidJob, compat.InvalidTask, TypeError, ValueError) as error:
                if self._declarations.is_better_known(entry):
                    # Its code is newer, or older, than ours: whoever has it can make the job.
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
