"""The reason that people give for what they do: checked before anything is done."""

from __future__ import annotations

from django import forms
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from djqueue.jobs.encoding import is_storable, storable

MAX_REASON = 500


def validate_storable(text: str) -> None:
    """Refuse half of a character, which no store holds. NUL is refused by Django's fields themselves."""
    if not is_storable(text):
        raise ValidationError(_("Characters that cannot be stored are not allowed."))


class ReasonForm(forms.Form):
    reason = forms.CharField(label=_("Reason"), required=False, max_length=MAX_REASON, validators=[validate_storable])

    @classmethod
    def of(cls, request: HttpRequest) -> ReasonForm:
        """Read the reason that a request brings, if it brings one."""
        return cls(request.POST if "reason" in request.POST else None)

    @property
    def text(self) -> str:
        """What the field shows again after an error: as typed, as far as that can be shown."""
        return storable(self.data.get("reason", ""), 2 * MAX_REASON)

    @property
    def is_refused(self) -> bool:
        return self.is_bound and not self.is_valid()

    @property
    def sentence(self) -> str:
        """The reason; empty if none was given."""
        return str(self.cleaned_data["reason"]) if self.is_bound else ""
