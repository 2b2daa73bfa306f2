-- Announce a worker. Params: id uuid, name, hostname text, pid int, queues jsonb, concurrency int.
INSERT INTO djqueue_worker (id, name, hostname, pid, queues, concurrency)
VALUES (%(id)s, %(name)s, %(hostname)s, %(pid)s, %(queues)s::jsonb, %(concurrency)s)
