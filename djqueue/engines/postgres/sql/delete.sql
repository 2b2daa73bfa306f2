-- Delete live jobs that wait, without a trace.
-- Params: ids bigint[], only text[] (null: regardless of their state), by and reason text; is_settling bool: let an event take
-- effect (_wished.sql). Returns: as cancel.sql.
-- Never a job that executes: its worker could not record the outcome. Waits for transactions that hold a row; see cancel.sql.
WITH
-- include: locked_waiting
,
-- include: delete table=djqueue_job
,
-- include: ends ended=deleted as_events=true
,
-- include: wished kind=delete
SELECT id, state, is_awaited, (SELECT array_agg(id) FROM counted) AS counts FROM deleted
UNION ALL
SELECT subject_id, 'suspended', NULL, NULL FROM wished
