"""Rules of queues, the workers, and their leader."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from djqueue.models.moment import Moment


class Queue(models.Model):
    """The rules that operators have set for a queue. A queue without a row has none."""

    name = models.CharField(_("name"), max_length=128, primary_key=True)
    paused_at = Moment(_("paused at"), null=True)
    paused_by = models.CharField(_("paused by"), max_length=255, db_default="")
    pause_reason = models.TextField(_("reason"), db_default="")

    class Meta:
        required_db_vendor = "postgresql"
        verbose_name = _("queue")
        verbose_name_plural = _("queues")
        permissions = [("pause_queue", _("Can pause and resume queues"))]

    def __str__(self) -> str:
        return self.name


class Worker(models.Model):
    """One worker process. Each start gets a new id."""

    id = models.UUIDField(primary_key=True)
    name = models.CharField(_("name"), max_length=255)
    hostname = models.CharField(_("host"), max_length=255)
    pid = models.IntegerField(_("process id"))
    queues = models.JSONField(_("queues"), db_default={})
    concurrency = models.IntegerField(_("concurrency"))
    started_at = Moment(_("started at"), db_default=Now())
    beat = models.BigIntegerField(
        _("beat"), db_default=0, help_text=_("Raised every two seconds while the worker is alive.")
    )
    beat_at = Moment(_("last beat at"), db_default=Now())
    is_draining = models.BooleanField(_("draining"), db_default=False)
    died_at = Moment(
        _("died at"),
        null=True,
        help_text=_("When the worker was found dead. The row stays until none of its jobs is left to rescue."),
    )

    version = models.CharField(  # noqa: DJ001  null, not empty: not known
        _("version"),
        max_length=64,
        null=True,
        editable=False,
        help_text=_("The version of djqueue that the worker runs."),
    )
    tasks = models.JSONField(
        _("tasks"), null=True, editable=False, help_text=_("The paths of the tasks that the worker can run.")
    )

    class Meta:
        required_db_vendor = "postgresql"
        verbose_name = _("worker")
        verbose_name_plural = _("workers")

    def __str__(self) -> str:
        return self.name


class Leader(models.Model):
    """The process that does the maintenance: a lease by the database's clock, with a term that only grows."""

    name = models.CharField(max_length=64, primary_key=True)
    holder = models.UUIDField()
    term = models.BigIntegerField()
    expires_at = Moment()
    elected_at = Moment(db_default=Now(), help_text=_("When this holder became the leader."))
    loops = models.JSONField(db_default={}, help_text=_("When each of the leader's loops last did its work."))

    class Meta:
        required_db_vendor = "postgresql"
        verbose_name = _("leader")
        verbose_name_plural = _("leaders")

    def __str__(self) -> str:
        return f"{self.name}, term {self.term}"
