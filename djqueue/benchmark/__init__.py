"""What ``manage.py benchqueue`` measures, on the user's own machine and database.

Real workers run real jobs on a queue of their own, ``djqueue.benchmark``. Nothing foreign is touched: the queue must be empty and
not served by any worker, its jobs are deleted afterwards, finished ones too, and the tasks are known only to processes that have
DJQUEUE_BENCHMARK in their environment.

Every run is checked: each job notes its executions in a file that all processes share (``record.py``), so a job that ran
twice or never is found whatever the store says, on every engine alike. Latencies count from when a job should have been sent,
not from when a busy sender came round to it.
"""
