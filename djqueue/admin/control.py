"""Retry, cancel, discard and delete jobs: one, some, or all that match.

A button sends the selection to a page that shows how many jobs are affected and asks for a reason; that page sends the
same again with a confirmation. Jobs are identified by their ids, not by rows that were read: a job that changes its table
or its state between the two requests is still found, and each skipped job is reported with its reason.

Large selections are processed in batches of one transaction each, for twenty seconds at most: a proxy would cut off a longer
request, and its result would be lost.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from django.conf import settings
from django.contrib import messages
from django.contrib.admin import AdminSite, helpers
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.core.exceptions import BadRequest, PermissionDenied
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext, ngettext, ngettext_lazy
from django.utils.translation import gettext_lazy as _

from djqueue import api
from djqueue.admin.audit import audited, entry
from djqueue.admin.base import SourceAdmin
from djqueue.admin.formatting import state_badge
from djqueue.admin.reasons import ReasonForm
from djqueue.admin.sources import COUNT_LIMIT, Source, page_url, source_of
from djqueue.jobs import records
from djqueue.jobs.control import Controlled, ControlOutcome
from djqueue.jobs.lists import JobFilter, ListedJob
from djqueue.jobs.states import FINAL_STATES, LIVE_STATES, JobState
from djqueue.models import Job

V = TypeVar("V", bound=Callable[..., Any])

SECONDS = 20.0
BATCH = 1000
MOST_LOGGED = 200
"""Up to this many jobs of a batch get a log entry each; more share one entry with their number."""
_SHOWN = 20
_NAMED = 5


@dataclass(frozen=True)
class Selection:
    """The jobs that an action is for."""

    ids: Sequence[int] = field(default_factory=list)
    jobs: JobFilter | None = None
    """With ``is_all``: the filter of the selected jobs. None: no job can match."""
    is_all: bool = False

    def count_states(self, source: Source) -> dict[str, int] | None:
        """Count by state; None if that takes too long."""
        if self.is_all:
            return {} if self.jobs is None else source.reader().count_states(self.jobs, limit=COUNT_LIMIT)
        return Counter(job.state for job in source.reader().get_many(self.ids))

    def batches(self, source: Source) -> Iterator[Sequence[int]]:
        """Yield ids, for a filter only up to the newest job at the start: new jobs could prolong it without end."""
        if not self.is_all:
            for start in range(0, len(self.ids), BATCH):
                yield self.ids[start : start + BATCH]
        elif self.jobs is not None:
            reader, after = source.reader(), 0
            last = reader.count(self.jobs, limit=1).last
            while ids := reader.find(self.jobs, after=after, last=last, limit=BATCH):
                yield ids
                after = ids[-1]


@dataclass(frozen=True)
class Verb:
    name: str
    label: Any
    """The text of the button."""
    title: Any
    button: Any
    does: dict[JobState, Any]
    """By state: what happens to such a job, for the confirmation page."""
    takes_reason: bool = False

    def may(self, request: HttpRequest) -> bool:
        """Return whether the user may do this to any jobs."""
        return bool(self.states(request))

    def states(self, request: HttpRequest) -> tuple[JobState, ...]:
        """Return the states of the jobs to which the user may do this."""
        states = api.CONTROLLABLE[self.name]
        if self.name != "delete":
            return states if request.user.has_perm(f"djqueue.{self.name}_job") else ()
        may_live, may_finished = (request.user.has_perm(f"djqueue.delete_{m}") for m in ("job", "finishedjob"))
        return tuple(state for state in states if (may_finished if state in FINAL_STATES else may_live))


_WAITING = [state for state in LIVE_STATES if state is not JobState.EXECUTING]
_DUE = (JobState.SCHEDULED, JobState.RETRYABLE)
_RETRIED: dict[JobState, Any] = dict.fromkeys(
    [*FINAL_STATES, *_DUE], _("will be available again, with room for one more attempt")
)
_CANCELLED: dict[JobState, Any] = {
    **dict.fromkeys(_WAITING, _("will end at once")),
    JobState.EXECUTING: _("will be asked to end, and will not run again"),
}
_DISCARDED: dict[JobState, Any] = dict.fromkeys(_WAITING, _("will end at once as discarded"))
_DELETED: dict[JobState, Any] = dict.fromkeys([*_WAITING, *FINAL_STATES], _("will be deleted without a trace"))
VERBS = {
    verb.name: verb
    for verb in (
        Verb("retry", _("Retry"), _("Retry jobs"), _("Yes, retry"), _RETRIED),
        Verb("cancel", _("Cancel"), _("Cancel jobs"), _("Yes, cancel"), _CANCELLED, takes_reason=True),
        Verb("discard", _("Discard"), _("Discard jobs"), _("Yes, discard"), _DISCARDED, takes_reason=True),
        Verb("delete", _("Delete"), _("Delete jobs"), _("Yes, delete"), _DELETED),
    )
}

ACTIONS = {f"{name}_jobs": verb for name, verb in VERBS.items()}
"""The names that the admin's forms send."""


def buttons(request: HttpRequest, job: records.Job) -> list[tuple[str, Any]]:
    """Return the actions that the user may take on this job, each with its label."""
    return [(action, verb.label) for action, verb in ACTIONS.items() if job.state in verb.states(request)]


def check(model_admin: Any, request: HttpRequest) -> None:
    """Raise ``PermissionDenied`` for an action that the user may not take, instead of Django's "No action selected"."""
    for action in request.POST.getlist("action"):
        if action in ACTIONS:
            is_delete = ACTIONS[action].name == "delete"
            if not (model_admin.has_remove_permission(request) if is_delete else ACTIONS[action].may(request)):
                raise PermissionDenied
    ids_of(source_of(request), request.POST.getlist(helpers.ACTION_CHECKBOX_NAME))


def outside_of_transactions(view: V) -> V:
    """Keep ATOMIC_REQUESTS from making one transaction of all batches."""
    for alias in settings.DATABASES:
        view = transaction.non_atomic_requests(using=alias)(view)
    return view


def act(model_admin: SourceAdmin[Any], request: HttpRequest, verb: Verb, selection: Selection) -> HttpResponse:
    """Ask for a confirmation, or act if the request brings one."""
    if not verb.may(request):
        raise PermissionDenied
    form = ReasonForm.of(request)
    if "confirmed" not in request.POST or (verb.takes_reason and form.is_refused):
        return _ask(model_admin, request, verb, selection, form)
    return _do(model_admin, request, verb, selection, form.sentence if verb.takes_reason else "")


def _ask(
    model_admin: SourceAdmin[Any], request: HttpRequest, verb: Verb, selection: Selection, form: ReasonForm
) -> HttpResponse:
    source, site, ids = source_of(request), model_admin.admin_site, selection.ids
    counts = selection.count_states(source)
    may = verb.states(request)
    lines, total = [], 0
    for state in JobState:
        if counts and (count := counts.get(state.value, 0)):
            can = state in may
            total += count if can else 0
            does = verb.does[state] if can else gettext("will be left unchanged")
            lines.append((state_badge(state.value), f"{count:,}", does, can))
    one = page_url(site, Job, source.key(ids[0])) if len(ids) == 1 else ""
    context = {
        "verb": verb,
        "lines": lines,
        "total": total,
        "is_uncounted": counts is None,
        "missing": 0 if selection.is_all else len(ids) - sum((counts or {}).values()),
        "jobs": _some(site, source, source.reader().get_many(ids[:_SHOWN])) if ids else [],
        "more": max(0, len(ids) - _SHOWN),
        "keys": [source.key(id) for id in ids],
        "is_all": selection.is_all,
        "action": f"{verb.name}_jobs",
        "checkbox": helpers.ACTION_CHECKBOX_NAME,
        "back": one if "from_page" in request.POST else request.get_full_path(),
        "from_page": "from_page" in request.POST,
        "form_url": request.get_full_path(),
        "reason": form["reason"],
    }
    return model_admin.question(request, "admin/djqueue/control_confirmation.html", str(verb.title), context)


def _do(
    model_admin: SourceAdmin[Any], request: HttpRequest, verb: Verb, selection: Selection, reason: str
) -> HttpResponse:
    ids = selection.ids
    values: dict[str, Any] = {"only": verb.states(request)}
    if verb.takes_reason:
        values.update(by=request.user.get_username(), reason=reason)
    source = source_of(request)
    verb_of = getattr(source.engine, verb.name)
    report, is_done, is_cut = api.Report(), False, False
    until = time.monotonic() + SECONDS
    for batch in selection.batches(source):
        # Each batch keeps its effect and its log entries if a later one fails.
        with audited(source, _announcement(model_admin, request, verb, batch, reason)) as entries:
            controlled = verb_of(batch, **values)
            entries += _entries(model_admin, request, verb, [one for one in controlled if one.is_done], reason)
        report.add(controlled)
        is_done = is_done or bool(entries)
        if time.monotonic() > until:
            is_cut = True
            break
    _tell(model_admin, request, verb, report, is_cut=is_cut)
    if "from_page" in request.POST and len(ids) == 1:
        is_gone = verb.name == "delete" and is_done
        site = model_admin.admin_site
        return HttpResponseRedirect(
            source.list_url(site, model_admin.model) if is_gone else page_url(site, Job, source.key(ids[0]))
        )
    return HttpResponseRedirect(request.get_full_path())


_DONE = {
    ControlOutcome.CANCELLED: ngettext_lazy("%(count)s job was cancelled.", "%(count)s jobs were cancelled.", "n"),
    ControlOutcome.REQUESTED: ngettext_lazy(
        "%(count)s job executes and was asked to end.", "%(count)s jobs execute and were asked to end.", "n"
    ),
    ControlOutcome.RETRIED: ngettext_lazy(
        "%(count)s job is available again.", "%(count)s jobs are available again.", "n"
    ),
    ControlOutcome.DISCARDED: ngettext_lazy("%(count)s job was discarded.", "%(count)s jobs were discarded.", "n"),
    ControlOutcome.DELETED: ngettext_lazy("%(count)s job was deleted.", "%(count)s jobs were deleted.", "n"),
}
_NOTES = {
    ControlOutcome.CANCELLED: "Cancelled.",
    ControlOutcome.REQUESTED: "Asked to end.",
    ControlOutcome.RETRIED: "Retried.",
    ControlOutcome.DISCARDED: "Discarded.",
    ControlOutcome.DELETED: "Deleted.",
}


def _entries(
    model_admin: SourceAdmin[Any], request: HttpRequest, verb: Verb, done: Sequence[Controlled], reason: str
) -> list[LogEntry]:
    """Return the log entries: one per job, or one for a batch with too many jobs."""
    source, model, flag = source_of(request), model_admin.model, _flag(verb)
    why = f" {reason}" if reason else ""
    if len(done) <= MOST_LOGGED:
        keys = [source.key(one.id) for one in done]
        return [
            entry(request, model, _NOTES[one.outcome] + why, key=key, name=f"#{key}", flag=flag)
            for key, one in zip(keys, done, strict=True)
        ]
    outcomes = Counter(_NOTES[one.outcome] for one in done)
    words = " ".join(f"{count:,}: {sentence}" for sentence, count in outcomes.items())
    return [entry(request, model, words + why, name=_name(source, [one.id for one in done]), flag=flag)]


def _announcement(
    model_admin: SourceAdmin[Any], request: HttpRequest, verb: Verb, ids: Sequence[int], reason: str
) -> LogEntry:
    """Return the log entry to write before the act, for a store that is not in the database of the log."""
    source = source_of(request)
    key = source.key(ids[0]) if len(ids) == 1 else None
    words = f"{verb.name.capitalize()} requested. {reason}".strip()
    return entry(request, model_admin.model, words, key=key, name=_name(source, ids), flag=_flag(verb))


def _flag(verb: Verb) -> int:
    return DELETION if verb.name == "delete" else CHANGE


def _name(source: Source, ids: Sequence[int]) -> str:
    if len(ids) == 1:
        return f"#{source.key(ids[0])}"
    bounds = " to ".join(f"#{source.key(pick(ids))}" for pick in (min, max))
    return f"{len(ids):,} jobs, {bounds}"


def _tell(model_admin: SourceAdmin[Any], request: HttpRequest, verb: Verb, report: api.Report, *, is_cut: bool) -> None:
    for outcome, count in report.outcomes.items():
        if outcome in _DONE:
            level = messages.SUCCESS if outcome is not ControlOutcome.REQUESTED else messages.INFO
            model_admin.message_user(request, _DONE[outcome] % {"n": count, "count": f"{count:,}"}, level)
    for reason, count in report.skipped.items():
        named = ", ".join(f"#{id}" for id in report.examples[reason][:_NAMED])
        if count > len(report.examples[reason]):
            named += ", …"
        words = {"count": f"{count:,}", "named": named, "reason": reason}
        sentence = ngettext("%(count)s job was skipped (%(named)s): %(reason)s.",
                            "%(count)s jobs were skipped (%(named)s): %(reason)s.", count) % words  # fmt: skip
        model_admin.message_user(request, sentence, messages.WARNING)
    if is_cut:
        sentence = gettext("Stopped after 20 seconds. Repeat the action to continue with the other jobs.")
        model_admin.message_user(request, sentence, messages.WARNING)
    elif not report.outcomes:
        model_admin.message_user(request, gettext("No job was changed."), messages.WARNING)


def _some(site: AdminSite, source: Source, jobs: Iterable[ListedJob]) -> list[dict[str, Any]]:
    return [
        {
            "name": f"#{source.key(job.id)}",
            "url": page_url(site, Job, source.key(job.id)),
            "task": job.task,
            "queue": job.queue,
            "badge": state_badge(job.state),
        }
        for job in jobs
    ]


def ids_of(source: Source, keys: Iterable[str]) -> list[int]:
    ids = set()
    for key in keys:
        text = source.bare(key)
        if text != key and key != source.key(text):
            raise BadRequest(f"Invalid key {key!r}: use keys of jobs in {source.label}.")
        if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) < 2**63):
            raise BadRequest(f"Invalid job id {key!r}: use a whole number.")
        ids.add(int(text))
    return sorted(ids)
