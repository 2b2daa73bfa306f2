"""Workflows and batches in PostgreSQL.

``insert`` stores them in the caller's transaction. ``effects`` has what an end does to the jobs and flows that wait for it, inside a
transaction; ``settling`` has the transactions: those right after an ack or an insert, and those of the stager for what was left behind.
"""
