"""The page of one job."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.contrib import admin
from django.contrib.admin import helpers
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext

from djqueue.admin import control, gone
from djqueue.admin.known import why_unknown
from djqueue.admin.situation import Situation
from djqueue.admin.stores import may_view, page_url, store_named, store_of
from djqueue.admin.timeline import CANCELLED, ended_by, timeline
from djqueue.admin.words import NOTHING, attempts, exact, parse_time, pretty, short, somebody, state_badge
from djqueue.jobs.compression import readable
from djqueue.models import NEVER, AbstractJob, FinishedJob, Job, Worker

if TYPE_CHECKING:
    from djqueue.admin.jobs import AbstractJobAdmin


def job_url(job_id: int | str, site: admin.AdminSite = admin.site, *, backend: str | None = None) -> str:
    """Return the address of a job's page. It stays right when the job finishes: the page of a live job leads on.

    ``backend``: the entry of TASKS that has the job, as ``TaskResult.backend`` says; None: the one that the admin shows first.
    """
    return page_url(site, Job, job_id if backend is None else store_named(backend).key(job_id))


def view(
    model_admin: AbstractJobAdmin[Any], request: HttpRequest, object_id: str, extra: dict[str, Any]
) -> HttpResponse:
    """Show a job, or lead to the page of the table that holds it by now."""
    site, store = model_admin.admin_site, store_of(request)
    job_id = _bigint(store.bare(unquote(object_id)))
    job = None if job_id is None else store.job(job_id)
    model = model_admin.model if job is None else table_of(job)
    if not may_view(request, model):
        raise PermissionDenied
    if job is None:
        return gone.view(model_admin, request, unquote(object_id))
    if model is not model_admin.model:
        return HttpResponseRedirect(page_url(site, model, job.pk))

    request.current_app = site.name
    context = {
        **model_admin.page_context(request),
        "title": str(job),
        "original": job,
        "object_id": object_id,
        "add": False,
        "change": True,
        "preserved_filters": model_admin.get_preserved_filters(request),
        **_contents(model_admin, request, job),
        **extra,
    }
    return TemplateResponse(request, "admin/djqueue/job_detail.html", context)


def find(model_admin: AbstractJobAdmin[Any], request: HttpRequest, job_id: int) -> str | None:
    """Return the address of a job that the user may see; None if there is none."""
    job = store_of(request).job(job_id)
    if job is None or not may_view(request, table_of(job)):
        return None
    return page_url(model_admin.admin_site, table_of(job), job.pk)


def table_of(job: AbstractJob) -> type[AbstractJob]:
    """Return the model of the table that holds the job."""
    return Job if job.finished_at is None else FinishedJob


@dataclass(frozen=True)
class Failure:
    """One entry of a job's errors as strings: whatever stands there, nothing of it is called or trusted."""

    title: str
    message: str
    at: str
    traceback: str
    is_meant: bool = False
    """Cancelled or discarded on purpose, not failed."""


def _contents(model_admin: AbstractJobAdmin[Any], request: HttpRequest, job: AbstractJob) -> dict[str, Any]:
    store, site = store_of(request), model_admin.admin_site
    now: datetime = job.as_of  # type: ignore[attr-defined]
    situation = Situation(
        job=job,
        now=now,
        queue=store.queue(job.queue),
        workers=store.workers(),
        why_unknown=why_unknown(job.task),
    )
    claimer, worker = somebody(job.attempted_by), situation.claimer()
    args, kwargs = readable(job.args, job.kwargs)
    return {
        "state": state_badge(job.state),
        "buttons": control.buttons(request, job),
        "control_url": store.list_url(site, model_admin.model),
        "checkbox": helpers.ACTION_CHECKBOX_NAME,
        "sentence": situation.sentence(),
        "hints": situation.hints(),
        "facts": [
            (gettext("Task"), job.task, store.list_url(site, model_admin.model, task=job.task)),
            (gettext("Queue"), job.queue, store.list_url(site, model_admin.model, queue=job.queue)),
            (gettext("Attempt"), attempts(job.attempt, job.max_attempts), ""),
            (gettext("Priority"), str(job.priority), ""),
            (
                gettext("Worker"),
                worker.name if worker else short(claimer) if claimer else NOTHING,
                page_url(site, Worker, worker.pk) if worker and may_view(request, Worker) else "",
            ),
            (gettext("Claimed at"), NOTHING if job.attempted_at == NEVER else exact(job.attempted_at), ""),
            (gettext("Claim"), str(job.claim), ""),
            (gettext("Unique key"), job.unique_key or NOTHING, ""),
        ],
        "events": timeline(job, now),
        "args": pretty(args),
        "kwargs": pretty(kwargs),
        "has_result": job.state == "completed" or job.result is not None,
        "result": pretty(job.result),
        "failures": [_failure(error) for error in reversed(job.errors)] if isinstance(job.errors, list) else [],
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
    """Say who wanted it, when and why; show what is no request as it stands there."""
    if not isinstance(request, dict):
        return pretty(request)
    at = parse_time(request.get("at"))
    said = " ".join(part for part in (_cancelled_by(request.get("by")), exact(at) if at else "") if part)
    return f"{said}: {request['reason']}" if request.get("reason") else said


def _bigint(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 and int(text) < 2**63 else None
