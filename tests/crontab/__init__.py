"""An app with a crontab, of its own: the workers of other tests must not find jobs that nobody enqueued."""
