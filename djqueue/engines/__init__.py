"""Storage implementations, one package each, behind the protocols in ``protocol.py`` and ``cron.py``.

An engine stores jobs and answers nine verbs about them; it knows nothing of tasks, threads or Django's tasks framework.
``tests/engines/test_conformance.py`` is the specification of the seam.
"""
