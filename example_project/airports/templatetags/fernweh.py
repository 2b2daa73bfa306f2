"""What the templates of the site need to say things nicely."""

from django import template
from django.conf import settings

register = template.Library()


@register.simple_tag
def media(name: str) -> str:
    return f"{settings.MEDIA_URL}{name}"


@register.filter
def thousands(number: int) -> str:
    return f"{number:,}"


@register.simple_tag
def duration(job) -> str:
    """How long a finished job took from enqueue to end."""
    return f"{(job.finished_at - job.enqueued_at).total_seconds():.2f} s"


@register.filter
def reason(error) -> str:
    """The last line of a traceback: what went wrong."""
    lines = error.traceback.strip().splitlines()
    return lines[-1] if lines else error.exception_class_path
