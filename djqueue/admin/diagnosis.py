"""Why a job does not run now, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils.translation import gettext, ngettext

from djqueue.admin.formatting import attempts, duration, exact, short
from djqueue.admin.timeline import CANCELLED, DISCARDED, summary
from djqueue.jobs.lists import WorkerStatus
from djqueue.jobs.records import Job
from djqueue.jobs.states import JobState
from djqueue.models import Queue


@dataclass(frozen=True)
class Diagnosis:
    """A job and all that decides whether it can run."""

    job: Job
    now: datetime
    queue: Queue | None = None
    workers: Sequence[WorkerStatus] = ()
    why_unknown: str = ""
    """Why this process does not know the task; empty if it does."""

    def sentence(self) -> str:
        job = self.job
        match job.state:
            case JobState.SCHEDULED:
                return self._due()
            case JobState.RETRYABLE:
                failed = gettext("Attempt %(attempts)s failed.") % {"attempts": attempts(job.attempt, job.max_attempts)}
                return f"{failed} {self._due()}"
            case JobState.SUSPENDED:
                return gettext("Waits for other jobs to finish.")
            case JobState.AVAILABLE:
                return self._available()
            case JobState.EXECUTING:
                return self._executing()
            case JobState.COMPLETED:
                return gettext("Completed in attempt %(attempts)s.") % {
                    "attempts": attempts(job.attempt, job.max_attempts)
                }
            case JobState.CANCELLED:
                return gettext("Cancelled; it will not run again.") + self._last_error()
            case JobState.DISCARDED:
                said = gettext("Discarded before its first attempt; it will not run again.")
                if job.attempt:
                    said = gettext("Discarded after attempt %(attempts)s; it will not run again.")
                return said % {"attempts": attempts(job.attempt, job.max_attempts)} + self._last_error()

    def hints(self) -> list[str]:
        """Say what else matters, a sentence each."""
        job = self.job
        hints: list[str] = []
        if job.finished_at is not None:
            return hints
        if self.why_unknown:
            hints.append(self.why_unknown)
        if isinstance(job.cancel_request, dict):
            hints.append(
                gettext("Cancellation was asked for by %(who)s. %(reason)s")
                % {
                    "who": job.cancel_request.get("by") or gettext("a user"),
                    "reason": job.cancel_request.get("reason") or "",
                }
            )
        if job.expires_at is not None and job.started_at is None:
            left = job.expires_at - self.now
            hints.append(
                gettext("Expires in %(duration)s unless it starts before.") % {"duration": duration(left)}
                if left > timedelta(0)
                else gettext("Expired %(duration)s ago: it will be cancelled.") % {"duration": duration(-left)}
            )
        return hints

    def claimer(self) -> WorkerStatus | None:
        return next((worker for worker in self.workers if worker.id == self.job.attempted_by), None)

    def _due(self) -> str:
        at = self.job.scheduled_at
        if at is None:
            return gettext("Has no time at which it is due.")
        if at > self.now:
            return gettext("Due in %(duration)s.") % {"duration": duration(at - self.now)}
        words = {"duration": duration(self.now - at)}
        if not self._alive():
            return gettext("Due for %(duration)s: no worker is alive to make it available.") % words
        return gettext("Due for %(duration)s: about to be made available.") % words

    def _available(self) -> str:
        job, queue = self.job, self.queue
        if queue is not None and queue.paused_at is not None:
            return gettext("Queue %(queue)r was paused%(who)s %(duration)s ago%(why)s.") % {
                "queue": job.queue,
                "who": gettext(" by %(who)s") % {"who": queue.paused_by} if queue.paused_by else "",
                "duration": duration(self.now - queue.paused_at),
                "why": gettext(" because: %(reason)s") % {"reason": queue.pause_reason.rstrip(".")}
                if queue.pause_reason
                else "",
            }
        waited = (
            gettext("Available for %(duration)s: ") % {"duration": duration(self.now - job.ready_at)}
            if job.ready_at
            else ""
        )
        serving = [worker for worker in self._alive() if job.queue in worker.queues]
        if not serving:
            return waited + gettext("no live worker serves queue %(queue)r.") % {"queue": job.queue}
        taking = [worker for worker in serving if not worker.is_draining]
        if not taking:
            return waited + gettext("every worker that serves queue %(queue)r is shutting down.") % {"queue": job.queue}
        return waited + ngettext(
            "one worker serves queue %(queue)r and takes what is before it first.",
            "%(count)d workers serve queue %(queue)r and take what is before it first.",
            len(taking),
        ) % {"queue": job.queue, "count": len(taking)}

    def _executing(self) -> str:
        job, worker = self.job, self.claimer()
        claimer, started = job.attempted_by, job.attempted_at
        if claimer is None or started is None:
            return gettext("Executing, but the store does not say where or since when.")
        words = {
            "worker": worker.name if worker else short(claimer),
            "at": exact(started),
            "duration": duration(self.now - started),
            "beat": duration(timedelta(seconds=worker.silent_seconds)) if worker else "",
        }
        if worker is None:
            return (
                gettext("Claimed by worker %(worker)s, whose record is gone: it will be rescued within a minute.")
                % words
            )
        match worker.state:
            case "dead":
                return gettext("Worker %(worker)s died while executing it: it is about to be rescued.") % words
            case "silent":
                return (
                    gettext(
                        "Executing on worker %(worker)s, which last beat %(beat)s ago: it is rescued as soon as the worker counts as dead."
                    )
                    % words
                )
        return gettext("Executing on worker %(worker)s for %(duration)s, since %(at)s; last beat %(beat)s ago.") % words

    def _alive(self) -> list[WorkerStatus]:
        return [worker for worker in self.workers if worker.state in ("alive", "draining")]

    def _last_error(self) -> str:
        errors: Any = self.job.errors
        if isinstance(errors, list) and errors and isinstance(errors[-1], dict) and (said := summary(errors[-1])):
            if errors[-1].get("exception") in (CANCELLED, DISCARDED):
                return " " + gettext("Reason: %(reason)s") % {"reason": said.partition(": ")[2] or said}
            return " " + gettext("Last error: %(error)s") % {"error": said}
        return ""
