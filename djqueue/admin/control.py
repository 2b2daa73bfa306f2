"""What people may do to jobs: retry, cancel, discard and delete, one or all that match.

A button sends what was chosen to a page that says how many jobs it will do something to, and asks for a reason; that
page sends the same again with a confirmation. Jobs are named by their ids, not by rows that were read: what
has changed its table or its state between the two is still found, and what was left alone is told with its reason.

Many jobs are done in batches of a transaction each, for twenty seconds at most: a request that lasts longer is cut off by
a proxy, and nobody would learn what it did.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from django.conf import settings
from django.contrib import messages
from django.contrib.admin import AdminSite, helpers
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.core.exceptions import BadRequest, PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from djqueue import api
from djqueue.admin.audit import audited, entry
from djqueue.admin.reasons import ReasonForm
from djqueue.admin.stores import Store, bare, page_url, store_of
from djqueue.admin.words import state_badge
from djqueue.jobs.records import Controlled, ControlOutcome
from djqueue.jobs.states import FINAL_STATES, LIVE_STATES, JobState
from djqueue.models import AbstractJob, Job

if TYPE_CHECKING:
    from djqueue.admin.jobs import AbstractJobAdmin

V = TypeVar("V", bound=Callable[..., Any])

SECONDS = 20.0
BATCH = 1000
MOST_LOGGED = 200
"""Up to so many jobs of a batch get an entry each in the log; more share one that says how many they were."""
_SHOWN = 20
_NAMED = 5


@dataclass(frozen=True)
class Verb:
    name: str
    label: Any
    """What the button says."""
    title: Any
    button: Any
    does: dict[JobState, Any]
    """State → what happens to a job in it, for the page that asks."""
    takes_reason: bool = False

    def may(self, request: HttpRequest) -> bool:
        """Say whether the user may do this to any jobs."""
        return bool(self.states(request))

    def states(self, request: HttpRequest) -> tuple[JobState, ...]:
        """Return the states of the jobs to which the user may do this."""
        states = api.CONTROLLABLE[self.name]
        if self.name != "delete":
            return states if request.user.has_perm(f"djqueue.{self.name}_job") else ()
        may_live, may_finished = (request.user.has_perm(f"djqueue.delete_{m}") for m in ("job", "finishedjob"))
        return tuple(state for state in states if (may_finished if state in FINAL_STATES else may_live))


_WAITING = [state for state in LIVE_STATES if state is not JobState.EXECUTING]
_AGAIN = _("will be available again, with room for one more attempt")
VERBS = {
    verb.name: verb
    for verb in (
        Verb(
            "retry",
            _("Retry"),
            _("Retry jobs"),
            _("Yes, retry"),
            {**dict.fromkeys(FINAL_STATES, _AGAIN), **dict.fromkeys((JobState.SCHEDULED, JobState.RETRYABLE), _AGAIN)},
        ),
        Verb(
            "cancel",
            _("Cancel"),
            _("Cancel jobs"),
            _("Yes, cancel"),
            {
                **dict.fromkeys(_WAITING, _("will end at once")),
                JobState.EXECUTING: _("will be asked to end, and will not run again"),
            },
            takes_reason=True,
        ),
        Verb(
            "discard",
            _("Discard"),
            _("Discard jobs"),
            _("Yes, discard"),
            dict.fromkeys(_WAITING, _("will end at once as discarded")),
            takes_reason=True,
        ),
        Verb(
            "delete",
            _("Delete"),
            _("Delete jobs"),
            _("Yes, delete"),
            dict.fromkeys([*_WAITING, *FINAL_STATES], _("will be deleted without a trace")),
        ),
    )
}

ACTIONS = {f"{name}_jobs": verb for name, verb in VERBS.items()}
"""The names that the admin's forms send."""


def buttons(request: HttpRequest, job: AbstractJob) -> list[tuple[str, Any]]:
    """Return what the user may do to this job: action and label."""
    return [(action, verb.label) for action, verb in ACTIONS.items() if job.state in verb.states(request)]


def check(model_admin: AbstractJobAdmin[Any], request: HttpRequest) -> None:
    """Refuse an action to whoever lacks its permission, instead of Django's "No action selected"."""
    for action in request.POST.getlist("action"):
        if action in ACTIONS:
            is_delete = ACTIONS[action].name == "delete"
            if not (model_admin.has_remove_permission(request) if is_delete else ACTIONS[action].may(request)):
                raise PermissionDenied
    _ids(store_of(request), request.POST.getlist(helpers.ACTION_CHECKBOX_NAME))


def outside_of_transactions(view: V) -> V:
    """Keep ATOMIC_REQUESTS from making one transaction of all batches."""
    for alias in settings.DATABASES:
        view = transaction.non_atomic_requests(using=alias)(view)
    return view


def act(model_admin: AbstractJobAdmin[Any], request: HttpRequest, verb: Verb, queryset: QuerySet[Any]) -> HttpResponse:
    """Ask whether it is meant, or do it."""
    if not verb.may(request):
        raise PermissionDenied
    is_all = request.POST.get("select_across") == "1"
    ids = [] if is_all else _ids(store_of(request), request.POST.getlist(helpers.ACTION_CHECKBOX_NAME))
    form = ReasonForm.of(request)
    if "confirmed" not in request.POST or (verb.takes_reason and form.is_refused):
        return _ask(model_admin, request, verb, queryset if is_all else None, ids, form)
    reason = form.sentence if verb.takes_reason else ""
    return _do(model_admin, request, verb, queryset if is_all else None, ids, reason)


def _ask(
    model_admin: AbstractJobAdmin[Any],
    request: HttpRequest,
    verb: Verb,
    everything: QuerySet[Any] | None,
    ids: list[int],
    form: ReasonForm,
) -> HttpResponse:
    store, site = store_of(request), model_admin.admin_site
    jobs = store.jobs(ids)
    counts = Counter(job.state for job in jobs) if everything is None else store.count_states(everything)
    may = verb.states(request)
    lines, total = [], 0
    for state in JobState:
        if counts and (count := counts.get(state.value, 0)):
            can = state in may
            total += count if can else 0
            does = verb.does[state] if can else gettext("will be left as is")
            lines.append((state_badge(state.value), f"{count:,}", does, can))
    missing = len(ids) - sum(int(number.replace(",", "")) for _badge, number, _does, _can in lines)
    one = page_url(site, Job, store.key(ids[0])) if len(ids) == 1 else ""
    request.current_app = site.name
    context = {
        **model_admin.page_context(request),
        "title": verb.title,
        # What Django's template of a form looks at besides the block that ours fills: the way here.
        "original": verb.title,
        "add": False,
        "change": True,
        "verb": verb,
        "lines": lines,
        "total": total,
        "is_uncounted": counts is None,
        "missing": max(0, missing) if everything is None else 0,
        "jobs": _some(site, jobs),
        "more": max(0, len(ids) - _SHOWN),
        "keys": [store.key(id) for id in ids],
        "is_all": everything is not None,
        "action": f"{verb.name}_jobs",
        "checkbox": helpers.ACTION_CHECKBOX_NAME,
        "back": one if "from_page" in request.POST else request.get_full_path(),
        "from_page": "from_page" in request.POST,
        "form_url": request.get_full_path(),
        "reason": form["reason"],
    }
    return TemplateResponse(request, "admin/djqueue/control_confirmation.html", context)


def _do(
    model_admin: AbstractJobAdmin[Any],
    request: HttpRequest,
    verb: Verb,
    everything: QuerySet[Any] | None,
    ids: list[int],
    reason: str,
) -> HttpResponse:
    values: dict[str, Any] = {"only": verb.states(request)}
    if verb.takes_reason:
        values.update(by=request.user.get_username(), reason=reason)
    store = store_of(request)
    verb_of = getattr(store.engine, verb.name)
    report, is_done, is_cut = api.Report(), False, False
    until = time.monotonic() + SECONDS
    for batch in _batches(ids) if everything is None else store.pages(everything, BATCH):
        # What was done stays done, and noted, when a later batch fails.
        with audited(store, _announcement(model_admin, request, verb, batch, reason)) as entries:
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
            store.list_url(site, model_admin.model) if is_gone else page_url(site, Job, store.key(ids[0]))
        )
    return HttpResponseRedirect(request.get_full_path())


_NOTES = {
    ControlOutcome.CANCELLED: "Cancelled.",
    ControlOutcome.REQUESTED: "Asked to end.",
    ControlOutcome.RETRIED: "Retried.",
    ControlOutcome.DISCARDED: "Discarded.",
    ControlOutcome.DELETED: "Deleted.",
}


def _entries(
    model_admin: AbstractJobAdmin[Any], request: HttpRequest, verb: Verb, done: Sequence[Controlled], reason: str
) -> list[LogEntry]:
    """Note who did it: an entry per job, or one for all of a batch where they are too many."""
    store, model, flag = store_of(request), model_admin.model, _flag(verb)
    why = f" {reason}" if reason else ""
    if len(done) <= MOST_LOGGED:
        keys = [store.key(one.id) for one in done]
        return [
            entry(request, model, _NOTES[one.outcome] + why, key=key, name=f"#{key}", flag=flag)
            for key, one in zip(keys, done, strict=True)
        ]
    outcomes = Counter(_NOTES[one.outcome] for one in done)
    words = " ".join(f"{count:,}: {sentence}" for sentence, count in outcomes.items())
    return [entry(request, model, words + why, name=_name(store, [one.id for one in done]), flag=flag)]


def _announcement(
    model_admin: AbstractJobAdmin[Any], request: HttpRequest, verb: Verb, ids: Sequence[int], reason: str
) -> LogEntry:
    """Note what is about to be done, for a store that knows nothing of the log."""
    store = store_of(request)
    key = store.key(ids[0]) if len(ids) == 1 else None
    words = f"{verb.name.capitalize()} requested. {reason}".strip()
    return entry(request, model_admin.model, words, key=key, name=_name(store, ids), flag=_flag(verb))


def _flag(verb: Verb) -> int:
    return DELETION if verb.name == "delete" else CHANGE


def _name(store: Store, ids: Sequence[int]) -> str:
    if len(ids) == 1:
        return f"#{store.key(ids[0])}"
    bounds = " to ".join(f"#{store.key(pick(ids))}" for pick in (min, max))
    return f"{len(ids):,} jobs, {bounds}"


def _tell(
    model_admin: AbstractJobAdmin[Any], request: HttpRequest, verb: Verb, report: api.Report, *, is_cut: bool
) -> None:
    for outcome, sentence in _sentences(report.outcomes):
        level = messages.SUCCESS if outcome is not ControlOutcome.REQUESTED else messages.INFO
        model_admin.message_user(request, sentence, level)
    for reason, count in report.skipped.items():
        named = ", ".join(f"#{id}" for id in report.examples[reason][:_NAMED])
        if count > len(report.examples[reason]):
            named += ", …"
        words = {"count": f"{count:,}", "named": named, "reason": reason}
        sentence = ngettext("%(count)s job was left as it was (%(named)s): %(reason)s.",
                            "%(count)s jobs were left as they were (%(named)s): %(reason)s.", count) % words  # fmt: skip
        model_admin.message_user(request, sentence, messages.WARNING)
    if is_cut:
        sentence = gettext("That took too long to do at once. Do it again to go on with the rest.")
        model_admin.message_user(request, sentence, messages.WARNING)
    elif not report.outcomes:
        model_admin.message_user(request, gettext("There was no job left to do this to."), messages.WARNING)


def _sentences(outcomes: dict[ControlOutcome, int]) -> Iterator[tuple[ControlOutcome, str]]:
    for outcome, count in outcomes.items():
        words = {"count": f"{count:,}"}
        match outcome:
            case ControlOutcome.CANCELLED:
                yield outcome, ngettext("%(count)s job was cancelled.", "%(count)s jobs were cancelled.", count) % words
            case ControlOutcome.REQUESTED:
                yield outcome, ngettext(
                    "%(count)s job executes and was asked to end.", "%(count)s jobs execute and were asked to end.", count
                ) % words  # fmt: skip
            case ControlOutcome.RETRIED:
                yield outcome, ngettext(
                    "%(count)s job is available again.", "%(count)s jobs are available again.", count
                ) % words  # fmt: skip
            case ControlOutcome.DISCARDED:
                yield outcome, ngettext("%(count)s job was discarded.", "%(count)s jobs were discarded.", count) % words
            case ControlOutcome.DELETED:
                yield outcome, ngettext("%(count)s job was deleted.", "%(count)s jobs were deleted.", count) % words


def _some(site: AdminSite, jobs: Iterable[AbstractJob]) -> list[dict[str, Any]]:
    return [
        {
            "name": f"#{job.pk}",
            "url": page_url(site, Job, job.pk),
            "task": job.task,
            "queue": job.queue,
            "badge": state_badge(job.state),
        }
        for job in sorted(jobs, key=lambda job: int(bare(job.pk)))[:_SHOWN]
    ]


def _batches(ids: list[int]) -> Iterator[list[int]]:
    for start in range(0, len(ids), BATCH):
        yield ids[start : start + BATCH]


def _ids(store: Store, keys: Iterable[str]) -> list[int]:
    ids = set()
    for key in keys:
        text = store.bare(key)
        if text != key and key != store.key(text):
            raise BadRequest(f"{key!r} is no job of {store.label}.")
        if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) < 2**63):
            raise BadRequest(f"{key!r} is no id of a job.")
        ids.add(int(text))
    return sorted(ids)
