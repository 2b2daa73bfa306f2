"""The tables.

``Job`` holds live jobs only; the ack that finishes a job moves its row to ``FinishedJob`` in the same statement. The
live table stays small, cached and quick to vacuum, whatever the size of the history. Both have the same columns.

A claim must be a HOT update: the columns it writes (state, attempt, claim, attempted_by, attempted_at) are in no index and
in no index predicate, are never null, and have the same width from the start. The page keeps half of its space free
for the new row version (fillfactor, in the migration).

A null costs no space: the header of a row has room for the null bits of 72 columns (``pg_column_size`` of a plain job did not
grow with the columns that only some jobs use). The columns that fetch and ack read come before the JSON columns, because
PostgreSQL reads a row from its start to the column that it needs.

Do not point foreign keys at jobs: store ``result.id`` instead. The engine's SQL writes the rows; the models are for reading.

These tables exist on PostgreSQL only. On a database of another vendor, in a project whose jobs live in Redis, ``migrate``
creates ``OutboxRow`` and no other table (``required_db_vendor``; the migration says the same). The permissions exist everywhere,
because the admin shows jobs in Redis too.
"""

from __future__ import annotations

from uuid import uuid4

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from djqueue.jobs.records import NOBODY
from djqueue.jobs.states import FINAL_STATES, JobState
from djqueue.models.fields import NEVER, Moment
from djqueue.models.flows import Dependency, Flow, FlowCount, FlowEvent

__all__ = [
    "AbstractJob",
    "CronEntry",
    "CronTick",
    "Dependency",
    "FinishedJob",
    "Flow",
    "FlowCount",
    "FlowEvent",
    "Job",
    "Leader",
    "OutboxRow",
    "Queue",
    "Scheduler",
    "UniqueKey",
    "Worker",
]


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
