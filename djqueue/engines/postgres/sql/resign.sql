-- Give up the leadership. Params: holder uuid.
UPDATE djqueue_leader SET expires_at = 'epoch' WHERE name = 'maintenance' AND holder = %(holder)s
