"""What the templates of the site need to say things nicely."""

from typing import Any

from django import template
from django.conf import settings

from djqueue import TaskResult

register = template.Library()


@register.simple_tag
def media(name: str) -> str:
    return f"{settings.MEDIA_URL}{name}"


@register.filter
def thousands(number: int) -> str:
    return f"{number:,}"


@register.simple_tag
def duration(result: TaskResult) -> str:
    """How long it took from the enqueue to the end."""
    return f"{(result.finished_at - result.enqueued_at).total_seconds():.2f} s"


@register.filter
def reason(error: Any) -> str:
    """What the exception said: the last line of the traceback, without the name of its class."""
    lines = error.traceback.strip().splitlines()
    return lines[-1].partition(": ")[2] if lines else error.exception_class_path
