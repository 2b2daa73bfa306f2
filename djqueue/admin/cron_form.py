"""The form of a cron entry. It stores nothing that could not run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar
from zoneinfo import available_timezones

from django import forms
from django.conf import settings
from django.utils.translation import gettext_lazy as _

from djqueue import crontab
from djqueue.admin.sources import Source
from djqueue.cron.entry import CronDefinition
from djqueue.exceptions import InvalidCron
from djqueue.models import CronEntry
from djqueue.tasks import registry

if TYPE_CHECKING:
    _Form = forms.ModelForm[CronEntry]
else:
    _Form = forms.ModelForm


class CronEntryForm(_Form):
    args = forms.JSONField(label=_("Arguments"), required=False, initial=list, help_text=_('A list: [1, "two"].'))
    kwargs = forms.JSONField(
        label=_("Keyword arguments"), required=False, initial=dict, help_text=_('An object: {"days": 7}.')
    )
    task = forms.ChoiceField(label=_("Task"), choices=())
    timezone = forms.ChoiceField(label=_("Time zone"), choices=())

    class Meta:
        model = CronEntry
        fields = ["name", *crontab.FIELDS]

    source: ClassVar[Source]
    """Whose crontab it is. Each request has a class of its own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "task" in self.fields:
            self._choose("task", _task_names(self.source), self.instance.task)
            # A form without an instance has no initial values, not even the model's defaults.
            zone = self.initial.get("timezone") or settings.TIME_ZONE
            self._choose("timezone", sorted({"UTC", *available_timezones()}), zone)
            self.initial["timezone"] = zone

    def _choose(self, field: str, names: list[str], stored: str) -> None:
        # What is stored stays a choice, or the form could not be saved at all. Whether it can run is asked below.
        choices = [(name, name) for name in sorted({*names, stored} - {""})]
        # With nothing stored, a browser would preselect the first name, which is then easily saved by mistake.
        self.fields[field].choices = choices if stored else [("", "---------"), *choices]  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        values: dict[str, Any] = super().clean() or self.cleaned_data
        for name, empty in (("args", []), ("kwargs", {})):
            if name in values and values[name] is None:
                values[name] = empty
        if not self.errors and "task" in self.fields:
            definition = CronDefinition(**{name: values[name] for name in crontab.FIELDS})
            try:
                crontab.check(values.get("name") or self.instance.name, definition, backend=self.source.alias)
            except InvalidCron as error:
                self.add_error(None, str(error))
        return values

    def validate_unique(self) -> None:
        # Not by the model's manager: a router may send that to a replica, and without one it knows no alias but its default.
        name = self.cleaned_data.get("name")
        is_new: bool = self.instance._state.adding and self.instance.pk is None
        if is_new and name and self.source.engine.cron.entries([name]):
            self.add_error("name", self.instance.unique_error_message(CronEntry, ("name",)))


def _task_names(source: Source) -> list[str]:
    registry.autodiscover_once()
    return sorted(task.module_path for task in registry.known().values() if crontab.is_at_home(task, source.alias))
