"""The tables of workflows and batches.

``Flow`` counts jobs, ``Dependency`` says which job waits for what. Both have their ids from the sequence of ``Job``, so a dependency
may name a job or a flow. A dependency never changes: how its upstream ended is in the tables of jobs and flows.

No ack writes the row of a flow, because acks of one flow would wait for each other there. It adds a row to ``FlowCount``, which is
added up after the commit. For the same reason a transaction of the application writes ``FlowEvent`` instead of locking a job that
an ack may need. Both tables are empty almost always.
"""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from djqueue.jobs.flows import DependencyRule, FlowKind, OnFailure
from djqueue.models.fields import Moment


class Flow(models.Model):
    """A workflow, a batch, or a part of one: jobs that are counted together."""

    id = models.BigIntegerField(primary_key=True)
    whole_id = models.BigIntegerField(
        _("whole"), null=True, help_text=_("The workflow or batch that this one is a part of.")
    )
    kind = models.CharField(
        _("kind"),
        max_length=8,
        choices=[(kind.value, kind.value) for kind in FlowKind],
        db_default=FlowKind.WORKFLOW.value,
    )
    name = models.CharField(_("name"), max_length=255, db_default="")
    on_failure = models.CharField(
        _("on failure"),
        max_length=8,
        choices=[(choice.value, choice.value) for choice in OnFailure],
        db_default=OnFailure.GO_ON.value,
    )
    is_open = models.BooleanField(_("open"), db_default=False, help_text=_("Whether jobs may still be added."))
    is_awaited = models.BooleanField(_("awaited"), db_default=False, help_text=_("Whether jobs wait for its end."))
    total = models.IntegerField(_("jobs"), db_default=0)
    completed = models.IntegerField(_("completed"), db_default=0)
    cancelled = models.IntegerField(_("cancelled"), db_default=0, help_text=_("Cancelled or deleted."))
    discarded = models.IntegerField(_("discarded"), db_default=0)
    first_id = models.BigIntegerField(
        _("first job"), db_default=0, help_text=_("The ids of its jobs lie between this and the last one.")
    )
    last_id = models.BigIntegerField(_("last job"), db_default=0)
    inserted_at = Moment(_("inserted at"), db_default=Now())
    failed_at = Moment(_("failed at"), null=True, help_text=_("When the first of its jobs did not complete."))
    finished_at = Moment(_("finished at"), null=True)
    meta = models.JSONField(_("meta"), db_default={})
    unique_key = models.CharField(_("unique key"), max_length=64, null=True)  # noqa: DJ001  null, not empty: not unique

    class Meta:
        required_db_vendor = "postgresql"
        required_db_features = ["supports_partial_indexes"]
        verbose_name = _("workflow")
        verbose_name_plural = _("workflows")
        constraints = [
            models.UniqueConstraint(
                fields=["unique_key"],
                condition=models.Q(unique_key__isnull=False, finished_at__isnull=True),
                name="djqueue_flow_unique",
            ),
        ]
        # The counters are in no index: counting is a HOT update.
        indexes = [
            models.Index(
                fields=["whole_id"],
                condition=models.Q(finished_at__isnull=True, whole_id__isnull=False),
                name="djqueue_flow_unfinished",
            ),
            models.Index(
                fields=["finished_at"], condition=models.Q(whole_id__isnull=True), name="djqueue_flow_finished"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name or self.kind} #{self.pk}"


class Dependency(models.Model):
    """A job, the downstream, waits for a job or flow, the upstream."""

    pk = models.CompositePrimaryKey("upstream_id", "downstream_id")
    upstream_id = models.BigIntegerField(_("upstream"))
    downstream_id = models.BigIntegerField(_("downstream"))
    rule = models.CharField(
        _("rule"), max_length=1, choices=[(rule.value, rule.name.lower()) for rule in DependencyRule]
    )

    class Meta:
        required_db_vendor = "postgresql"
        verbose_name = _("dependency")
        verbose_name_plural = _("dependencies")
        indexes = [models.Index(fields=["downstream_id"], name="djqueue_dependency_downstream")]

    def __str__(self) -> str:
        return f"{self.downstream_id} after {self.upstream_id}"


class FlowCount(models.Model):
    """What one ack or insert changes in the counts of one flow, until it is added up there."""

    flow_id = models.BigIntegerField(_("workflow"))
    added = models.IntegerField(_("added"), db_default=0)
    completed = models.IntegerField(_("completed"), db_default=0)
    cancelled = models.IntegerField(_("cancelled"), db_default=0)
    discarded = models.IntegerField(_("discarded"), db_default=0)

    class Meta:
        required_db_vendor = "postgresql"
        verbose_name = _("workflow count")
        verbose_name_plural = _("workflow counts")

    def __str__(self) -> str:
        return f"{self.flow_id} #{self.pk}"


class FlowEvent(models.Model):
    """What has been decided and still has to take effect: an end, a dependency on what was stored before, a control request."""

    kind = models.CharField(_("kind"), max_length=8)
    subject_id = models.BigIntegerField(_("subject"), help_text=_("A job or a workflow."))
    state = models.CharField(  # noqa: DJ001  null, not empty: not an end
        _("state"), max_length=9, null=True, help_text=_("How the subject ended.")
    )
    detail = models.JSONField(_("detail"), null=True)

    class Meta:
        required_db_vendor = "postgresql"
        verbose_name = _("workflow event")
        verbose_name_plural = _("workflow events")

    def __str__(self) -> str:
        return f"{self.kind} {self.subject_id}"
