"""The page of one job."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from django.contrib.admin import helpers
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db import models
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext

from djqueue.admin import control, missing
from djqueue.admin.base import SourceAdmin
from djqueue.admin.diagnosis import Diagnosis
from djqueue.admin.filters import job_id
from djqueue.admin.formatting import NOTHING, attempts, exact, parse_time, pretty, short, state_badge
from djqueue.admin.sources import may_view, model_of, page_url, source_of
from djqueue.admin.task_registry import why_unknown
from djqueue.admin.timeline import CANCELLED, ended_by, timeline
from djqueue.jobs.compression import readable
from djqueue.jobs.records import Job
from djqueue.jobs.states import JobState
from djqueue.models import Worker


class Original(NamedTuple):
    """What Django's templates look at of the row that a page is about."""

    pk: str
    name: str

    def __str__(self) -> str:
        return self.name


class Located(NamedTuple):
    """A job, its key, and the model under which it is listed."""

    job: Job | None
    key: str
    model: type[models.Model]

    @property
    def name(self) -> str:
        return "" if self.job is None else f"{self.job.task} #{self.key}"


def locate(model_admin: SourceAdmin[Any], request: HttpRequest, object_id: str) -> Located:
    """Find the job that an address names; refuse users who may not view it."""
    source = source_of(request)
    bare = source.bare(unquote(object_id))
    id = job_id(bare) if bare.isdigit() else None
    job = None if id is None else source.reader().get(id)
    model = model_admin.model if job is None else model_of(job.state)
    if not may_view(request, model):
        raise PermissionDenied
    return Located(job, source.key(bare if id is None else id), model)


def view(model_admin: SourceAdmin[Any], request: HttpRequest, object_id: str, extra: dict[str, Any]) -> HttpResponse:
    """Show a job, or redirect to its page under the other model."""
    site, found = model_admin.admin_site, locate(model_admin, request, object_id)
    if found.job is None:
        return missing.view(model_admin, request, unquote(object_id))
    if found.model is not model_admin.model:
        return HttpResponseRedirect(page_url(site, found.model, found.key))
    context = {
        "original": Original(found.key, found.name),
        "object_id": object_id,
        **_contents(model_admin, request, found.job),
        **extra,
    }
    return model_admin.question(request, "admin/djqueue/job_detail.html", found.name, context)


def find(model_admin: SourceAdmin[Any], request: HttpRequest, id: int) -> str | None:
    """Return the address of a job that the user may view; None if there is none."""
    source = source_of(request)
    job = source.reader().get(id)
    if job is None or not may_view(request, model_of(job.state)):
        return None
    return page_url(model_admin.admin_site, model_of(job.state), source.key(id))


@dataclass(frozen=True)
class Failure:
    """One entry of a job's errors as strings: whatever stands there, nothing of it is called or trusted."""

    title: str
    message: str
    at: str
    traceback: str
    is_meant: bool = False
    """Cancelled or discarded on purpose, not failed."""


def _contents(model_admin: SourceAdmin[Any], request: HttpRequest, job: Job) -> dict[str, Any]:
    source, site = source_of(request), model_admin.admin_site
    now = source.now
    diagnosis = Diagnosis(
        job=job,
        now=now,
        queue=source.queue(job.queue),
        workers=source.workers,
        why_unknown=why_unknown(job.task),
    )
    claimer, worker = job.attempted_by, diagnosis.claimer()
    errors: Any = job.errors  # a row can be edited by hand
    args, kwargs = readable(job.args, job.kwargs)
    return {
        "state": state_badge(job.state),
        "buttons": control.buttons(request, job),
        "control_url": source.list_url(site, model_admin.model),
        "checkbox": helpers.ACTION_CHECKBOX_NAME,
        "sentence": diagnosis.sentence(),
        "hints": diagnosis.hints(),
        "facts": [
            (gettext("Task"), job.task, source.list_url(site, model_admin.model, task=job.task)),
            (gettext("Queue"), job.queue, source.list_url(site, model_admin.model, queue=job.queue)),
            (gettext("Attempt"), attempts(job.attempt, job.max_attempts), ""),
            (gettext("Priority"), str(job.priority), ""),
            (
                gettext("Worker"),
                worker.name if worker else short(claimer) if claimer else NOTHING,
                page_url(site, Worker, source.key(worker.id)) if worker and may_view(request, Worker) else "",
            ),
            (gettext("Claimed at"), NOTHING if job.attempted_at is None else exact(job.attempted_at), ""),
            (gettext("Claim"), str(job.claim), ""),
            (gettext("Unique key"), job.unique_key or NOTHING, ""),
        ],
        "events": timeline(job, now),
        "args": pretty(args),
        "kwargs": pretty(kwargs),
        "has_result": job.state is JobState.COMPLETED or job.result is not None,
        "result": pretty(job.result),
        "failures": [_failure(error) for error in reversed(errors)] if isinstance(errors, list) else [],
        "meta": pretty(job.meta) if job.meta else "",
        "cancel_request": _cancel_request(job.cancel_request) if job.cancel_request else "",
    }


def _failure(error: object) -> Failure:
    if not isinstance(error, dict):
        return Failure(gettext("Unreadable"), pretty(error), "", "")
    if "left_out" in error:
        return Failure(gettext("%(count)s errors are left out here") % {"count": error["left_out"]}, "", "", "")
    at = parse_time(error.get("at"))
    worker = ""
    with suppress(ValueError):
        worker = gettext("on worker %(worker)s") % {"worker": short(UUID(str(error.get("worker"))))}
    title = gettext("Attempt %(number)s") % {"number": error.get("attempt", "?")}
    name = ended_by(error)
    if is_meant := name is not None:
        title = _cancelled_by(name) if error.get("exception") == CANCELLED else _discarded_by(name)
    return Failure(
        title=title if is_meant else f"{title}: {error.get('exception', '?')}",
        is_meant=is_meant,
        message=str(error.get("message", "")),
        at=" ".join(part for part in (exact(at) if at else str(error.get("at", "")), worker) if part),
        traceback=str(error.get("traceback", "")),
    )


def _cancelled_by(name: object) -> str:
    return gettext("Cancelled by %(name)s") % {"name": name} if name else gettext("Cancelled")


def _discarded_by(name: object) -> str:
    return gettext("Discarded by %(name)s") % {"name": name} if name else gettext("Discarded")


def _cancel_request(request: object) -> str:
    """Describe who asked for it, when and why; show an invalid request as JSON."""
    if not isinstance(request, dict):
        return pretty(request)
    at = parse_time(request.get("at"))
    said = " ".join(part for part in (_cancelled_by(request.get("by")), exact(at) if at else "") if part)
    return f"{said}: {request['reason']}" if request.get("reason") else said
