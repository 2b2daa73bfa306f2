-- Store dependencies, as lines of text.
COPY djqueue_dependency (upstream_id, downstream_id, rule) FROM STDIN
