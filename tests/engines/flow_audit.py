"""What has to be true of the tables of flows whenever no transaction is under way and nothing is left to settle."""

from __future__ import annotations

from django.db import connection

# Each suspended job counts those of its dependencies that have not ended. One that is still to take effect counts too.
_PENDING = """
SELECT job.id, job.pending, count(dependency.upstream_id) AS unmet
FROM djqueue_job AS job
LEFT JOIN djqueue_dependency AS dependency ON dependency.downstream_id = job.id AND (
    EXISTS (SELECT 1 FROM djqueue_job AS up WHERE up.id = dependency.upstream_id)
    OR EXISTS (
        SELECT 1 FROM djqueue_flow AS up
        WHERE up.id = dependency.upstream_id AND up.finished_at IS NULL AND (dependency.rule <> 'f' OR up.failed_at IS NULL)
    )
    OR EXISTS (SELECT 1 FROM djqueue_flowevent AS event WHERE event.kind = 'ended' AND event.subject_id = dependency.upstream_id)
)
WHERE job.state = 'suspended' AND job.unique_key IS NULL
GROUP BY job.id
HAVING job.pending IS DISTINCT FROM count(dependency.upstream_id)
"""

# What a flow has counted is what the tables of jobs hold, and it has finished if and only if nothing of it is left.
_COUNTS = """
SELECT flow.id, flow.total, flow.completed, flow.cancelled, flow.discarded, flow.finished_at IS NOT NULL, live.count, ended.good, ended.bad
FROM djqueue_flow AS flow
LEFT JOIN (SELECT flow_id, count(*) FROM djqueue_job GROUP BY flow_id) AS live ON live.flow_id = flow.id
LEFT JOIN (
    SELECT flow_id, count(*) FILTER (WHERE state = 'completed') AS good, count(*) FILTER (WHERE state <> 'completed') AS bad
    FROM djqueue_finishedjob
    GROUP BY flow_id
) AS ended ON ended.flow_id = flow.id
WHERE
    flow.total - flow.completed - flow.cancelled - flow.discarded <> COALESCE(live.count, 0)
    OR flow.completed <> COALESCE(ended.good, 0)
    OR (flow.cancelled + flow.discarded <> COALESCE(ended.bad, 0) AND NOT %(has_deleted)s)
    OR (flow.finished_at IS NULL) <> (
        COALESCE(live.count, 0) > 0 OR flow.is_open
        OR EXISTS (SELECT 1 FROM djqueue_flow AS part WHERE part.whole_id = flow.id AND part.finished_at IS NULL)
    )
"""


def audit(*, has_deleted: bool = False) -> None:
    """Fail unless the tables of flows agree. ``has_deleted``: jobs were deleted, which their flows count as cancelled."""
    with connection.cursor() as cursor:
        cursor.execute(_PENDING)
        assert cursor.fetchall() == []
        cursor.execute(_COUNTS, {"has_deleted": has_deleted})
        assert cursor.fetchall() == []
        cursor.execute("SELECT (SELECT count(*) FROM djqueue_flowevent), (SELECT count(*) FROM djqueue_flowcount)")
        assert cursor.fetchone() == (0, 0)
