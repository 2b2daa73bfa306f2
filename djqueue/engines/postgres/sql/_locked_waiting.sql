-- The chosen jobs that wait, locked.
locked AS MATERIALIZED (
    SELECT id
    FROM djqueue_job
    WHERE
        state <> 'executing' AND
        -- include: settled_here
        -- include: chosen
)
