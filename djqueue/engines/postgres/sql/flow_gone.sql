-- Say which of these flows have finished or do not exist. Params: ids bigint[]. Returns: id.
-- Without a lock: a transaction of the application must not make the counting of a flow wait. A flow that grows by a running job of its
-- own cannot finish meanwhile.
SELECT wanted.id
FROM unnest(%(ids)s::bigint[]) AS wanted (id)
WHERE NOT EXISTS (SELECT 1 FROM djqueue_flow AS flow WHERE flow.id = wanted.id AND flow.finished_at IS NULL)
