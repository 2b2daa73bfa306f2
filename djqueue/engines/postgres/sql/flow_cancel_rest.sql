-- Ask for the rest of a flow to be cancelled. Params: id bigint, detail jsonb (by, reason).
INSERT INTO djqueue_flowevent (kind, subject_id, detail) VALUES ('cancel', %(id)s::bigint, %(detail)s::jsonb)
