"""Pause and resume queues. A page asks, and takes a reason; the same request with a confirmation does it."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from djqueue.admin.audit import audited, entry
from djqueue.admin.base import SourceAdmin
from djqueue.admin.formatting import exact
from djqueue.admin.reasons import ReasonForm
from djqueue.admin.sources import Source, source_of
from djqueue.jobs.lists import QueueCounts
from djqueue.jobs.names import is_queue_name
from djqueue.models import Queue

TITLES = {"pause": _("Pause queue %(queue)s"), "resume": _("Resume queue %(queue)s")}
BUTTONS = {"pause": _("Yes, pause"), "resume": _("Yes, resume")}


def may(request: HttpRequest) -> bool:
    return bool(request.user.has_perm("djqueue.pause_queue"))


def view(model_admin: SourceAdmin[Any], request: HttpRequest) -> HttpResponse:
    """Ask whether it is meant, or do it; for POST only."""
    act, name = request.POST.get("act", ""), request.POST.get("queue", "")
    if not may(request) or act not in TITLES or not is_queue_name(name):
        raise PermissionDenied
    form = ReasonForm.of(request)
    if "confirmed" in request.POST and not form.is_refused:
        return _do(model_admin, request, act, name, form.sentence)
    source, site = source_of(request), model_admin.admin_site
    rules = source.queue(name)
    context = {
        "act": act,
        "queue": name,
        "button": BUTTONS[act],
        "rules": rules,
        "paused": "" if rules is None or rules.paused_at is None else _paused(rules),
        "sentences": _sentences(source, act, name),
        "back": source.list_url(site, Queue),
        "reason": form["reason"],
    }
    return model_admin.question(
        request, "admin/djqueue/pause_confirmation.html", TITLES[act] % {"queue": name}, context
    )


def _do(model_admin: SourceAdmin[Any], request: HttpRequest, act: str, name: str, reason: str) -> HttpResponse:
    source, words = source_of(request), {"queue": name}
    key = source.key(name)
    note = f"Paused. {reason}".strip() if act == "pause" else "Resumed."
    announcement = entry(request, Queue, f"{act.capitalize()} requested. {reason}".strip(), key=key)
    with audited(source, announcement) as entries:
        if act == "pause":
            is_done = source.engine.pause(name, by=request.user.get_username(), reason=reason)
            said = gettext("Queue %(queue)s is paused.") if is_done else gettext("Queue %(queue)s was paused already.")
        else:
            is_done = source.engine.resume(name)
            said = gettext("Queue %(queue)s is resumed.") if is_done else gettext("Queue %(queue)s was not paused.")
        if is_done:
            entries.append(entry(request, Queue, note, key=key))
    model_admin.message_user(request, said % words, messages.SUCCESS if is_done else messages.WARNING)
    return HttpResponseRedirect(source.list_url(model_admin.admin_site, Queue))


def _paused(rules: Queue) -> str:
    who = gettext("Paused by %(who)s") % {"who": rules.paused_by} if rules.paused_by else gettext("Paused")
    return f"{who}, {exact(rules.paused_at)}" + (f": {rules.pause_reason}" if rules.pause_reason else ".")


def _sentences(source: Source, act: str, name: str) -> list[str]:
    if (counts := source.counts) is None:
        return []
    states = counts.get(name, QueueCounts(name)).states
    waiting, running = states.get("available", 0), states.get("executing", 0)
    words = {"count": f"{waiting:,}"}
    if act == "resume":
        return [ngettext("%(count)s job can start at once.", "%(count)s jobs can start at once.", waiting) % words]
    sentences = [
        ngettext(
            "%(count)s job is waiting. Neither it nor new jobs will start until the queue is resumed.",
            "%(count)s jobs are waiting. Neither they nor new jobs will start until the queue is resumed.",
            waiting,
        )
        % words
    ]
    if running:
        sentences.append(
            ngettext(
                "%(count)s job is executing and will continue.",
                "%(count)s jobs are executing and will continue.",
                running,
            )
            % {"count": f"{running:,}"}
        )
    return sentences
