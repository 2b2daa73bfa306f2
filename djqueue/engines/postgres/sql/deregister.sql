-- Forget workers that left nothing behind. Params: workers uuid[].
DELETE FROM djqueue_worker WHERE id = ANY(%(workers)s::uuid[])
