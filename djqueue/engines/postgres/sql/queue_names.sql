-- List the queues that have available or executing jobs.
-- Params: limit int. Returns: queue, in order.
WITH RECURSIVE
-- include: queue_names
SELECT queue FROM name WHERE queue IS NOT NULL LIMIT %(limit)s
