"""Services that the queue needs beside its workers. They run in the supervisor's process.

Only the leader stages and looks for silent workers, but every act is safe with two leaders: rows are skipped when
locked, writes are fenced. A split brain costs work, never a job.
"""
