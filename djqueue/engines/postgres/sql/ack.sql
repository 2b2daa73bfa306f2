-- Finish jobs: move each from the live table to the history with its outcome.
-- Params: one array per column, all of the same length or empty: id, claim, state (null: completed), started_ago and finished_ago
-- (microseconds back from this write; started_ago null: the function never began), result, error (both may be null), is_spent
-- (null: true); now timestamptz (null: the database's clock).
-- Returns: id and unique_key of those that were accepted. A job that no longer executes under this claim is left alone.
-- Passes over jobs of flows and jobs that others wait for. The worker knows them from the fetch and sends them to ack_flow.sql, except
-- for a job that another began to wait for while it executed: what is not accepted here is offered to ack_flow.sql.
WITH
-- include: outcomes
        AND job.flow_id IS NULL AND job.is_awaited IS NULL
-- include: done
-- include: finished
RETURNING id, unique_key
