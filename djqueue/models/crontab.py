"""The crontab, its history, and the schedulers that run it."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from djqueue.models.moment import Moment


class CronEntry(models.Model):
    """An entry of the crontab: which task runs when. See ``djqueue.cron``."""

    name = models.CharField(_("name"), max_length=200, unique=True)
    task = models.CharField(_("task"), max_length=255)
    args = models.JSONField(_("arguments"), db_default=[], default=list, blank=True)
    kwargs = models.JSONField(_("keyword arguments"), db_default={}, default=dict, blank=True)
    queue = models.CharField(
        _("queue"), max_length=128, db_default="", default="", blank=True, help_text=_("Empty: that of the task.")
    )
    priority = models.SmallIntegerField(_("priority"), null=True, blank=True, help_text=_("Empty: that of the task."))
    expression = models.CharField(
        _("expression"),
        max_length=200,
        help_text=_(
            "Minute, hour, day of month, month, day of week and optionally second; or @hourly, @daily, @weekly, @monthly,"
            " @yearly, @reboot."
        ),
    )
    timezone = models.CharField(_("time zone"), max_length=64, db_default="UTC", default="UTC")
    misfire = models.CharField(
        _("missed times"),
        max_length=6,
        choices=[
            ("skip", _("skip them")),
            ("latest", _("run the latest")),
            ("all", _("run all within the window")),
        ],
        db_default="latest",
        default="latest",
        help_text=_("Which of the times that passed while no scheduler was running are run later."),
    )
    misfire_window_seconds = models.IntegerField(
        _("window of missed times"),
        db_default=3600,
        default=3600,
        help_text=_("In seconds; used with “run all within the window”."),
    )
    overlap = models.CharField(
        _("overlap"),
        max_length=14,
        choices=[
            ("allow", _("run both")),
            ("skip", _("skip this time")),
            ("queue", _("wait until it has ended")),
            ("cancel_running", _("cancel it and run")),
        ],
        db_default="allow",
        default="allow",
        help_text=_("What happens when a time comes while the previous job of the entry has not finished."),
    )
    jitter_seconds = models.IntegerField(
        _("jitter"),
        db_default=0,
        default=0,
        help_text=_("Each run is delayed by a random number of seconds, up to this one."),
    )
    start_at = Moment(_("start"), null=True, blank=True, help_text=_("The entry does not run before this time."))
    end_at = Moment(_("end"), null=True, blank=True, help_text=_("The entry does not run after this time."))
    max_runs = models.IntegerField(_("number of runs"), null=True, blank=True, help_text=_("Empty: unlimited."))
    code = models.JSONField(
        _("in the code"), null=True, blank=True, help_text=_("The definition in the code when it was last read.")
    )
    revision = models.BigIntegerField(_("revision"), db_default=1)
    created_at = Moment(_("created at"), db_default=Now())
    created_by = models.CharField(_("created by"), max_length=255, db_default="")
    changed_at = Moment(_("changed at"), db_default=Now())
    changed_by = models.CharField(_("changed by"), max_length=255, db_default="")
    paused_at = Moment(_("paused at"), null=True)
    paused_by = models.CharField(_("paused by"), max_length=255, db_default="")
    pause_reason = models.TextField(_("reason"), db_default="")
    disabled_at = Moment(_("disabled at"), null=True, help_text=_("When the entry was removed from the code."))
    finished_at = Moment(_("finished at"), null=True)
    planned_from = Moment(_("planned from"), db_default=Now())
    next_at = Moment(_("next time"), null=True)
    last_nominal_at = Moment(_("last time"), null=True)
    last_outcome = models.CharField(_("last outcome"), max_length=255, db_default="")
    runs = models.IntegerField(_("runs"), db_default=0)

    class Meta:
        required_db_vendor = "postgresql"
        verbose_name = _("cron entry")
        verbose_name_plural = _("cron entries")
        permissions = [
            ("pause_cronentry", "Can pause and resume cron entries"),
            ("run_cronentry", "Can run cron entries now"),
        ]

    def __str__(self) -> str:
        return self.name


class CronTick(models.Model):
    """The outcome of one nominal time of an entry, written in the transaction that inserts its job.

    Pruned by age: the entry's ``last_nominal_at``, not its old ticks, ensures that a time runs only once.
    """

    entry = models.ForeignKey(CronEntry, models.CASCADE, related_name="ticks", verbose_name=_("entry"))
    nominal_at = Moment(_("time"), null=True, help_text=_("Empty: the entry was run manually."))
    at = Moment(_("handled at"), db_default=Now())
    outcome = models.CharField(_("outcome"), max_length=8)
    reason = models.CharField(_("reason"), max_length=255, db_default="")
    job_id = models.BigIntegerField(_("job"), null=True)
    missed_from = Moment(
        _("missed from"), null=True, help_text=_("The first of the earlier times that were missed and did not run.")
    )
    by = models.CharField(_("by"), max_length=255, db_default="")

    class Meta:
        required_db_vendor = "postgresql"
        verbose_name = _("cron tick")
        verbose_name_plural = _("cron ticks")
        constraints = [models.UniqueConstraint(fields=["entry", "nominal_at"], name="djqueue_crontick_once")]
        indexes = [
            models.Index(fields=["entry", "-id"], name="djqueue_crontick_history"),
            models.Index(fields=["at"], name="djqueue_crontick_at"),
        ]

    def __str__(self) -> str:
        return f"{self.entry_id} {self.nominal_at or self.at}"


class Scheduler(models.Model):
    """The entries of the crontab in the code that a scheduler runs; see ``djqueue.maintenance.declarations``."""

    id = models.UUIDField(primary_key=True)
    name = models.CharField(_("name"), max_length=255)
    entries = models.JSONField(
        _("entries"), db_default={}, help_text=_("Name → fingerprint of the definition in the code.")
    )
    started_at = Moment(_("started at"), db_default=Now())
    declared_at = Moment(_("declared at"), db_default=Now())

    class Meta:
        required_db_vendor = "postgresql"
        verbose_name = _("scheduler")
        verbose_name_plural = _("schedulers")

    def __str__(self) -> str:
        return self.name
