"""Show the crontab, and change it with the right permissions.

Everything goes through ``djqueue.crontab``, as the command does, so the form can store nothing that could not run: the
task is chosen from those that are registered, and expression and arguments are tried. Pausing, resuming and running now
have permissions of their own, and are logged as changes are.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.models import ADDITION, CHANGE
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from djqueue import crontab
from djqueue.admin.audit import audited, entry
from djqueue.admin.base import SourceAdmin
from djqueue.admin.cron_form import CronEntryForm
from djqueue.admin.formatting import NOTHING, ago, badge, duration, exact
from djqueue.admin.reasons import ReasonForm
from djqueue.admin.sources import may_view, page_url, source_of
from djqueue.cron.entry import CronDefinition, CronTick
from djqueue.cron.entry import CronEntry as StoredEntry
from djqueue.cron.schedule import InvalidSchedule, Schedule
from djqueue.exceptions import DjqueueError, EngineRefused, EngineUnavailable, InvalidCron, UnknownCron
from djqueue.models import CronEntry, FinishedJob, Job

HISTORY = 50
STATES = {
    "active": ("alive", _("active")),
    "paused": ("paused", _("paused")),
    "finished": ("completed", _("finished")),
    "disabled": ("cancelled", _("no longer in the code")),
}
DEEDS = {
    "pause": _("Paused"),
    "resume": _("Resumed"),
    "run-now": _("Enqueued now"),
    "reset": _("Set back to the code"),
}


@dataclass(frozen=True)
class Line:
    """A line of the history, in words."""

    time: str
    badge: str
    reason: str
    lateness: str
    job: str
    url: str


@admin.register(CronEntry)
class CronEntryAdmin(SourceAdmin[CronEntry]):
    form = CronEntryForm
    change_form_template = "admin/djqueue/cron_entry.html"
    list_display = ["name", "schedule", "task", "state", "next_time", "last_time", "runs", "source"]
    search_fields = ["name", "task"]
    actions = ["pause_selected", "resume_selected", "run_selected", "delete_selected"]
    fieldsets = [
        (None, {"fields": ["name", "task", "args", "kwargs"]}),
        (_("When"), {"fields": ["expression", "timezone", "start_at", "end_at", "max_runs", "jitter_seconds"]}),
        (_("How"), {"fields": ["overlap", "misfire", "misfire_window_seconds", "queue", "priority"]}),
    ]

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        form = super().get_form(request, obj, change, **kwargs)
        form.source = source_of(request)  # type: ignore[attr-defined]
        return form

    def get_readonly_fields(self, request: HttpRequest, obj: CronEntry | None = None) -> list[str]:
        # The name is what the code and the command know it by.
        return [] if obj is None else ["name"]

    # Who may

    def has_view_permission(self, request: HttpRequest, obj: CronEntry | None = None) -> bool:
        return may_view(request, CronEntry) or self.has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: CronEntry | None = None) -> bool:
        is_in_code = obj is not None and obj.code is not None and obj.disabled_at is None
        return not is_in_code and super().has_delete_permission(request, obj)

    def has_pause_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("djqueue.pause_cronentry"))

    def has_run_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("djqueue.run_cronentry"))

    # The list

    @admin.display(description=_("schedule"))
    def schedule(self, entry: CronEntry) -> str:
        return format_html('<code>{}</code> <span class="djq-gap">{}</span>', entry.expression, entry.timezone)

    @admin.display(description=_("state"))
    def state(self, entry: CronEntry) -> str:
        kind, label = STATES[_stored(entry).state]
        note = ""
        if drift := _stored(entry).drift:
            note = gettext("differs from the code: %(fields)s") % {"fields": ", ".join(drift)}
        elif entry.paused_at is not None:
            who = gettext("by %(who)s") % {"who": entry.paused_by} if entry.paused_by else ""
            note = ": ".join(part for part in (who, entry.pause_reason) if part)
        elif problem := _problem(entry):
            kind, note = "dead", problem
        return format_html('{} <span class="djq-gap">{}</span>', badge(kind, label), note)

    @admin.display(description=_("next"))
    def next_time(self, entry: CronEntry) -> str:
        if _stored(entry).state != "active" or entry.next_at is None:
            return NOTHING
        as_of: datetime = entry.as_of  # type: ignore[attr-defined]
        if entry.next_at < as_of:
            return gettext("due for %(duration)s") % {"duration": duration(as_of - entry.next_at)}
        words = gettext("in %(duration)s") % {"duration": duration(entry.next_at - as_of)}
        return format_html(
            '<time datetime="{}" title="{}">{}</time>', entry.next_at.isoformat(), exact(entry.next_at), words
        )

    @admin.display(description=_("last"))
    def last_time(self, entry: CronEntry) -> str:
        as_of: datetime = entry.as_of  # type: ignore[attr-defined]
        if entry.last_nominal_at is None:
            return NOTHING
        return format_html("{}, {}", ago(entry.last_nominal_at, as_of), entry.last_outcome)

    @admin.display(description=_("source"))
    def source(self, entry: CronEntry) -> str:
        return gettext("database") if entry.code is None else gettext("code")

    # Writing

    def save_model(self, request: HttpRequest, obj: CronEntry, form: Any, change: bool) -> None:
        values = {name: form.cleaned_data[name] for name in crontab.FIELDS if not change or name in form.changed_data}
        by, source = _who(request), source_of(request)
        message = json.dumps(self.construct_change_message(request, form, [], not change))
        flag = CHANGE if change else ADDITION
        announcement = entry(
            request, CronEntry, "Change requested." if change else "Addition requested.", name=obj.name
        )
        with audited(source, announcement) as entries:
            if change:
                crontab.change(obj.name, by=by, backend=source.alias, **values)
            else:
                task, expression = values.pop("task"), values.pop("expression")
                obj.pk = source.key(crontab.add(obj.name, task, expression, by=by, backend=source.alias, **values).id)
            entries.append(entry(request, CronEntry, message, key=str(obj.pk), name=str(obj), flag=flag))

    def log_addition(self, request: HttpRequest, obj: CronEntry, message: Any) -> Any:
        """Do nothing: ``save_model`` noted it together with the deed."""

    log_change = log_addition

    def delete_model(self, request: HttpRequest, obj: CronEntry) -> None:
        crontab.remove(obj.name, backend=source_of(request).alias)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        # Its history goes with it: the page asks for no permission for it and shows no list of thousands of lines.
        count = len(objs)
        name = self.opts.verbose_name if count == 1 else self.opts.verbose_name_plural
        return [str(obj) for obj in objs], {name: count}, set(), []

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        try:
            return super().changeform_view(
                request, object_id, form_url, {**self._page(request, object_id), **(extra_context or {})}
            )
        except InvalidCron as error:
            # Another user changed the entry while the form was open.
            self.message_user(request, str(error), messages.ERROR)
            return HttpResponseRedirect(request.path)

    def _page(self, request: HttpRequest, object_id: str | None) -> dict[str, Any]:
        source = source_of(request)
        row = None if object_id is None else self.get_object(request, unquote(object_id))
        if row is None or not self.has_view_permission(request, row):
            return {}
        try:
            entry = crontab.get(row.name, backend=source.alias)
        except UnknownCron:  # removed this very moment
            return {}
        buttons = []
        if self.has_pause_permission(request):
            buttons.append(("resume", gettext("Resume")) if row.paused_at else ("pause", gettext("Pause")))
        if self.has_run_permission(request):
            buttons.append(("run-now", gettext("Run now")))
        if entry.drift and self.has_change_permission(request, row):
            buttons.append(("reset", gettext("Set back to the code")))
        return {
            "cron_state": self.state(row),
            "cron_buttons": buttons,
            "cron_drift": [
                (name, repr(getattr(entry.definition, name)), repr(getattr(entry.code, name))) for name in entry.drift
            ],
            "cron_next": [entry.definition.local(at) for at in crontab.next_times(entry, 5)]
            if entry.state == "active"
            else [],
            "cron_history": [
                self._line(request, tick, entry.definition)
                for tick in crontab.history(row.name, HISTORY, backend=source.alias)
            ],
        }

    def _line(self, request: HttpRequest, tick: CronTick, definition: CronDefinition) -> Line:
        reason = tick.reason
        if tick.missed_from is not None:
            reason = f"{reason} {gettext('missed from')} {definition.local(tick.missed_from)}".strip()
        if tick.nominal_at is None:
            when = gettext("by hand, by %(who)s") % {"who": tick.by or "?"}
        else:
            when = definition.local(tick.nominal_at)
        may_look = tick.job_id is not None and may_view(request, Job) and may_view(request, FinishedJob)
        return Line(
            time=when,
            badge=badge("completed" if tick.outcome == "enqueued" else "retryable", tick.outcome),
            reason=reason,
            lateness=exact(tick.at) if tick.nominal_at is None else duration(tick.at - tick.nominal_at),
            job="" if tick.job_id is None else f"#{tick.job_id}",
            url=page_url(self.admin_site, Job, source_of(request).key(tick.job_id)) if may_look else "",
        )

    # Acting

    @admin.action(permissions=["impossible"])
    def delete_selected(self, request: HttpRequest, entries: list[CronEntry]) -> None:
        """Take the place of Django's own: what the code has cannot be deleted, and that would not ask for each."""
        raise PermissionDenied

    def has_impossible_permission(self, request: HttpRequest) -> bool:
        return False

    @admin.action(description=_("Pause"), permissions=["pause"])
    def pause_selected(self, request: HttpRequest, entries: list[CronEntry]) -> None:
        self._act(request, entries, "pause")

    @admin.action(description=_("Resume"), permissions=["pause"])
    def resume_selected(self, request: HttpRequest, entries: list[CronEntry]) -> None:
        self._act(request, entries, "resume")

    @admin.action(description=_("Run now"), permissions=["run"])
    def run_selected(self, request: HttpRequest, entries: list[CronEntry]) -> None:
        self._act(request, entries, "run-now")

    def get_urls(self) -> list[URLPattern]:
        name = f"{self.opts.app_label}_{self.opts.model_name}_act"
        view = self.guarded(self.admin_site.admin_view(self.act_view))
        return [path("<path:object_id>/act/<slug:verb>/", view, name=name), *super().get_urls()]

    def act_view(self, request: HttpRequest, object_id: str, verb: str) -> HttpResponse:
        """Do one thing to one entry; POST only."""
        row = self.get_object(request, unquote(object_id))
        if request.method != "POST" or row is None or not self._may(request, verb, row):
            raise PermissionDenied
        form = ReasonForm.of(request)
        if form.is_refused:
            words = gettext("Reason: %(errors)s Nothing was done.") % {
                "errors": " ".join(map(str, form.errors["reason"]))
            }
            self.message_user(request, words, messages.ERROR)
        else:
            self._act(request, [row], verb, form.sentence)
        return HttpResponseRedirect(page_url(self.admin_site, CronEntry, row.pk))

    def _may(self, request: HttpRequest, verb: str, row: CronEntry) -> bool:
        if verb in ("pause", "resume"):
            return self.has_pause_permission(request)
        if verb == "run-now":
            return self.has_run_permission(request)
        return verb == "reset" and self.has_change_permission(request, row)

    def _act(self, request: HttpRequest, rows: list[CronEntry], verb: str, reason: str = "") -> None:
        done = 0
        acts: dict[str, Callable[..., Any]] = {
            "pause": lambda name, **kwargs: crontab.pause(name, reason, **kwargs),
            "resume": crontab.resume,
            "run-now": crontab.run_now,
            "reset": crontab.reset,
        }
        for row in rows:
            source, key = source_of(request), str(row.pk)
            requested = f"{verb.capitalize()} requested. {reason}".strip()
            announcement = entry(request, CronEntry, requested, key=key, name=str(row))
            try:
                with audited(source, announcement) as entries:
                    answer = acts[verb](row.name, by=_who(request), backend=source.alias)
                    if verb != "run-now" or answer.job_id is not None:
                        note = f"{DEEDS[verb]}. {reason}".strip()
                        entries.append(entry(request, CronEntry, note, key=key, name=str(row)))
            except (EngineUnavailable, EngineRefused):
                raise
            except DjqueueError as error:
                self.message_user(request, str(error), messages.ERROR)
                continue
            if verb == "run-now" and answer.job_id is None:
                text = gettext("%(name)s was not enqueued: %(reason)s.") % {"name": row.name, "reason": answer.reason}
                self.message_user(request, text, messages.WARNING)
                continue
            done += 1
        if done:
            words = ngettext("%(deed)s: %(count)d entry.", "%(deed)s: %(count)d entries.", done)
            self.message_user(request, words % {"deed": DEEDS[verb], "count": done}, messages.SUCCESS)


def _stored(row: CronEntry) -> StoredEntry:
    stored: StoredEntry = row.stored  # type: ignore[attr-defined]
    return stored


def _problem(entry: CronEntry) -> str:
    try:
        Schedule(entry.expression, entry.timezone)
    except InvalidSchedule as error:
        return str(error)
    return ""


def _who(request: HttpRequest) -> str:
    return request.user.get_username()
