"""Jobs: live, finished, and on their way; and the unique keys that they hold."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from djqueue.jobs.records import NOBODY
from djqueue.jobs.states import FINAL_STATES, JobState
from djqueue.models.moment import Moment

NEVER = datetime(1970, 1, 1, tzinfo=UTC)
"""``attempted_at`` of a job that was never claimed: as wide as the value with which the claim replaces it."""


class AbstractJob(models.Model):
    """A unit of work: which task, with which arguments, and what became of it."""

    id = models.BigAutoField(primary_key=True)
    state = models.CharField(
        _("state"),
        max_length=9,
        choices=[(state.value, state.value) for state in JobState],
        db_default=JobState.AVAILABLE.value,
    )
    queue = models.CharField(_("queue"), max_length=128, db_default="default")
    task = models.CharField(_("task"), max_length=255)
    flow_id = models.BigIntegerField(
        _("workflow"), null=True, editable=False, help_text=_("The workflow or batch that counts this job.")
    )
    is_awaited = models.BooleanField(
        _("awaited"), null=True, editable=False, help_text=_("Whether other jobs wait for the end of this one.")
    )
    pending = models.IntegerField(
        _("pending"),
        null=True,
        editable=False,
        help_text=_("How many jobs or workflows a suspended job still waits for."),
    )
    limit_key = models.CharField(  # noqa: DJ001  null, not empty: no limit
        _("limit key"),
        max_length=200,
        null=True,
        editable=False,
        help_text=_("The limit under which this job is counted."),
    )
    args = models.JSONField(_("arguments"), db_default=[])
    kwargs = models.JSONField(_("keyword arguments"), db_default={})
    priority = models.SmallIntegerField(_("priority"), db_default=0, help_text=_("−100 to 100; higher runs first."))
    attempt = models.IntegerField(_("attempt"), db_default=0, help_text=_("Number of times that the job was started."))
    max_attempts = models.IntegerField(_("max attempts"), db_default=20)
    claim = models.BigIntegerField(
        _("claim"),
        db_default=0,
        help_text=_("Raised by every fetch. An outcome is accepted only under the current claim."),
    )
    attempted_by = models.UUIDField(_("attempted by"), db_default=NOBODY)
    attempted_at = Moment(_("attempted at"), db_default=NEVER)
    inserted_at = Moment(_("inserted at"), db_default=Now())
    ready_at = Moment(_("ready at"), null=True, help_text=_("When the job became available; kept while it executes."))
    scheduled_at = Moment(_("scheduled at"), null=True, help_text=_("The job does not run before this time."))
    expires_at = Moment(
        _("expires at"), null=True, help_text=_("A job that has not started by this time is cancelled.")
    )
    started_at = Moment(_("started at"), null=True, help_text=_("When the function was first called."))
    finished_at = Moment(_("finished at"), null=True)
    errors = models.JSONField(_("errors"), db_default=[], help_text=_("One object per failed attempt, newest last."))
    result = models.JSONField(_("result"), null=True)
    meta = models.JSONField(_("meta"), db_default={})
    unique_key = models.CharField(_("unique key"), max_length=64, null=True)  # noqa: DJ001  null, not empty: not unique
    cancel_request = models.JSONField(_("cancel request"), null=True, help_text=_("Who requested it, why and when."))
    tags = models.JSONField(
        _("tags"), null=True, editable=False, help_text=_("A list of words by which jobs can be found.")
    )
    fingerprint = models.CharField(  # noqa: DJ001  null, not empty: not known
        _("fingerprint"),
        max_length=64,
        null=True,
        editable=False,
        help_text=_("Equal for jobs that failed in the same way."),
    )

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.task} #{self.pk}"


class Job(AbstractJob):
    class Meta:
        required_db_vendor = "postgresql"
        # Otherwise the system checks warn about the partial indexes on other databases.
        required_db_features = ["supports_partial_indexes"]
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        # Deleting is Django's own permission, one for each of the two tables.
        permissions = [
            ("retry_job", _("Can retry jobs")),
            ("cancel_job", _("Can cancel jobs")),
            ("discard_job", _("Can discard jobs")),
        ]
        constraints = [
            # Fetch relies on this: its index contains the available and executing jobs, and no others. A single constraint, in the
            # form that PostgreSQL parses fastest: it parses the text of a constraint for each statement, and three of them took
            # 20 of the 50 µs of server time that an insert needs.
            models.CheckConstraint(
                condition=models.Q(ready_at__isnull=True, state__regex="^(retryable|scheduled|suspended)$")
                | models.Q(ready_at__isnull=False, state__regex="^(available|executing)$"),
                name="djqueue_job_ready",
            ),
            models.UniqueConstraint(
                fields=["unique_key"], condition=models.Q(unique_key__isnull=False), name="djqueue_job_unique"
            ),
        ]
        indexes = [
            # A job enters the fetch index when it becomes available and stays in it while it executes: the claim
            # changes none of its columns. The order is exactly that of fetch.sql.
            models.Index(
                fields=["queue", "-priority", "ready_at", "id"],
                condition=models.Q(ready_at__isnull=False),
                name="djqueue_job_fetch",
            ),
            models.Index(
                fields=["scheduled_at", "id"],
                condition=models.Q(ready_at__isnull=True),
                name="djqueue_job_stage",
            ),
            # Almost always empty. It contains no column that a claim writes.
            models.Index(
                fields=["unique_key"],
                condition=models.Q(unique_key__endswith=":next"),
                name="djqueue_job_follow_up",
            ),
        ]


class FinishedJob(AbstractJob):
    class Meta:
        required_db_vendor = "postgresql"
        verbose_name = _("finished job")
        verbose_name_plural = _("finished jobs")
        constraints = [
            models.CheckConstraint(
                condition=models.Q(state__in=[s.value for s in FINAL_STATES]),
                name="djqueue_finishedjob_state",
            ),
        ]
        indexes = [models.Index(fields=["finished_at"], name="djqueue_finishedjob_finished")]


class UniqueKey(models.Model):
    """A unique key that is held for a time, or by a finished job. Live jobs hold their keys by their own rows."""

    key = models.CharField(_("key"), max_length=64, primary_key=True)
    job_id = models.BigIntegerField(_("job"))
    expires_at = models.DateTimeField(_("expires at"), null=True, help_text=_("Empty: for as long as the job is kept."))

    class Meta:
        required_db_vendor = "postgresql"
        verbose_name = _("unique key")
        verbose_name_plural = _("unique keys")
        indexes = [models.Index(fields=["expires_at", "job_id"], name="djqueue_uniquekey_expires")]

    def __str__(self) -> str:
        return self.key


class OutboxRow(models.Model):
    """Jobs that a transaction enqueued for a store outside this database; see ``djqueue.outbox``."""

    id = models.UUIDField(primary_key=True, default=uuid4, editable=False)
    backend = models.CharField(_("backend"), max_length=255, help_text=_("The entry of TASKS for which the jobs are."))
    created_at = models.DateTimeField(_("created at"), db_default=Now())
    text = models.TextField(_("text"))

    class Meta:
        verbose_name = _("outbox row")
        verbose_name_plural = _("outbox rows")
        indexes = [models.Index(fields=["created_at"], name="djqueue_outboxrow_created")]

    def __str__(self) -> str:
        return f"{self.backend} {self.created_at}"
