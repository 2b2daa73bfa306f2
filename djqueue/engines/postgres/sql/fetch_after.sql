-- Claim up to %(limit)s available jobs of one queue after given places: fetch.sql with a shortcut past dead entries.
-- Params: queue text, limit int, worker uuid, now timestamptz (null: the database's clock); and where to search, in run
-- order, as arrays of the same length: levels smallint[] (a priority, searched after the key after_at timestamptz[],
-- after_id bigint[]; null: a gap), above and below smallint[] (the gap: priorities between these two, searched whole).
-- Returns: what fetch.sql returns, under the same conditions: what is added there belongs here too.
-- Level by level, because "priority = p AND (ready_at, id) > (...)" is an index condition, and one condition over all levels
-- is not. A level that nobody here knows yet lies in a gap; it is searched in its turn. See place.py for what this passes over.
-- The join is a loop that stops as soon as it has enough, so nothing is locked that is not claimed.
WITH locked AS MATERIALIZED (
    SELECT found.place
    FROM unnest(
        %(levels)s::smallint[], %(above)s::smallint[], %(below)s::smallint[], %(after_at)s::timestamptz[], %(after_id)s::bigint[]
    ) AS range (level, above, below, after_at, after_id)
    CROSS JOIN LATERAL (
        SELECT place FROM (
            SELECT ctid AS place
            FROM djqueue_job
            WHERE
                queue = %(queue)s AND ready_at IS NOT NULL AND state <> 'executing'
                AND priority = range.level AND (ready_at, id) > (range.after_at, range.after_id)
                AND EXISTS (SELECT 1 FROM djqueue_worker WHERE id = %(worker)s AND died_at IS NULL)
                AND NOT EXISTS (SELECT 1 FROM djqueue_queue WHERE name = %(queue)s AND paused_at IS NOT NULL)
            ORDER BY priority DESC, ready_at, id
            LIMIT (SELECT %(limit)s::bigint)
            FOR UPDATE SKIP LOCKED
        ) AS level
        UNION ALL
        SELECT place FROM (
            SELECT ctid AS place
            FROM djqueue_job
            WHERE
                queue = %(queue)s AND ready_at IS NOT NULL AND state <> 'executing'
                AND priority > range.above AND priority < range.below
                AND EXISTS (SELECT 1 FROM djqueue_worker WHERE id = %(worker)s AND died_at IS NULL)
                AND NOT EXISTS (SELECT 1 FROM djqueue_queue WHERE name = %(queue)s AND paused_at IS NOT NULL)
            ORDER BY priority DESC, ready_at, id
            LIMIT (SELECT %(limit)s::bigint)
            FOR UPDATE SKIP LOCKED
        ) AS gap
    ) AS found
    LIMIT (SELECT %(limit)s::bigint)
),
claimed AS (
    UPDATE djqueue_job AS job
    SET
        state = 'executing',
        attempt = job.attempt + 1,
        claim = job.claim + 1,
        attempted_by = %(worker)s,
        attempted_at = COALESCE(%(now)s::timestamptz, clock_timestamp())
    WHERE job.ctid = ANY (ARRAY(SELECT place FROM locked)) AND job.state <> 'executing'
    RETURNING
        job.id, job.claim, job.queue, job.task, job.args, job.kwargs, job.attempt, job.max_attempts, job.priority,
        job.inserted_at, job.started_at, job.scheduled_at, job.expires_at, job.attempted_at, job.errors, job.meta, job.ready_at
)
SELECT
    id, claim, queue, task, args::text, kwargs::text, attempt, max_attempts, priority,
    inserted_at, started_at, scheduled_at, expires_at, attempted_at, errors::text, meta::text, ready_at
FROM claimed
ORDER BY priority DESC, ready_at, id
