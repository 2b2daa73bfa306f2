-- Forget the declarations of schedulers that have not renewed them.
-- Params: id uuid (of the calling scheduler, which stays), kept interval, now timestamptz (null: the database's clock).
WITH old AS MATERIALIZED (
    SELECT id
    FROM djqueue_scheduler
    WHERE id <> %(id)s::uuid AND declared_at < COALESCE(%(now)s::timestamptz, clock_timestamp()) - %(kept)s::interval
    FOR UPDATE SKIP LOCKED
)
DELETE FROM djqueue_scheduler AS scheduler USING old WHERE scheduler.id = old.id
