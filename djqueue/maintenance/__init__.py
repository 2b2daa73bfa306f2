"""What keeps the queue going beside the workers, in the supervisor's process, one ``Service`` each.

Only the leader stages and looks for silent workers, but every act is safe with two leaders: rows are skipped when
locked, writes are fenced. A split brain costs work, never a job.
"""
