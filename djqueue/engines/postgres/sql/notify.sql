-- Wake those who listen, whether they sleep or not, when the transaction commits.
-- Params: queues text[]. For transactions whose end nobody tells us of; see wakes.py.
SELECT count(pg_notify('djqueue:' || md5(current_schema()), queue))
FROM unnest(%(queues)s::text[]) AS queue
