"""Workflows: jobs that run in an order, together, or as one batch.

- ``canvas.py``: ``task.s()``, ``chain`` and ``group``, as in Celery.
- ``workflow.py``: ``Workflow``, a graph of named jobs whose arguments may refer to results (``result.py``).
- ``batch.py``: ``Batch``, any number of independent jobs with callbacks.
- ``plan.py``: turns the first two into the flows, jobs and dependencies that an engine stores (``drafts.py``, ``ends.py``), after
  checking them (``refusals.py``). It knows no store.
- ``enqueue.py`` stores a plan, and ``handle.py`` is what the caller gets back.
- ``inputs.py``, ``context.py`` and ``signals.py``: what runs in the worker. ``djqueue.tasks.context`` has the steps.

A job's meta has what its run needs under ``"flow"``: its name in the workflow and where results go into its arguments.
"""
