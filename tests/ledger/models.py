from __future__ import annotations

from django.db import models
from django.db.models.functions import Now


class Entry(models.Model):
    """One start of a task, written in a transaction of its own as the first thing that the task does."""

    label = models.CharField(max_length=100)
    pid = models.IntegerField()
    at = models.DateTimeField(db_default=Now())
