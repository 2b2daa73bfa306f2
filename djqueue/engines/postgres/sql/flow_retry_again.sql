-- Ask for a retry once more, because something else has to take effect first. Params: id bigint.
INSERT INTO djqueue_flowevent (kind, subject_id) VALUES ('retry', %(id)s::bigint)
