-- Announce a worker. Params: id uuid, name, hostname text, pid int, queues jsonb, concurrency int.
-- Again after an answer that was lost: nothing happens. A dead worker does not come back to life by it.
INSERT INTO djqueue_worker (id, name, hostname, pid, queues, concurrency)
VALUES (%(id)s, %(name)s, %(hostname)s, %(pid)s, %(queues)s::jsonb, %(concurrency)s)
ON CONFLICT (id) DO NOTHING
