-- The input of a statement that tells in input order what became of each job: each gets its id before it is stored.
input AS MATERIALIZED (
    SELECT given.*, nextval((SELECT pg_get_serial_sequence('djqueue_job', 'id'))) AS id
    FROM (
        -- include: job_input
    ) AS given
)
