-- Announce a worker. Params: id uuid, name, hostname text, pid int, queues jsonb, concurrency int.
-- Repeated after a lost response it does nothing. It does not revive a dead worker.
INSERT INTO djqueue_worker (id, name, hostname, pid, queues, concurrency)
VALUES (%(id)s, %(name)s, %(hostname)s, %(pid)s, %(queues)s::jsonb, %(concurrency)s)
ON CONFLICT (id) DO NOTHING
