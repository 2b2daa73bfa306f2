-- Wake all listeners, whether they sleep or not, when the transaction commits.
-- Params: queues text[]. For transactions whose end djqueue is not told of; see wakes.py.
SELECT count(pg_notify('djqueue:' || md5(current_schema()), queue))
FROM unnest(%(queues)s::text[]) AS queue
