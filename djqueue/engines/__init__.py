"""Storage implementations, one package each, behind the protocols in ``protocol/``.

An engine stores jobs; it knows nothing of tasks, threads or Django's tasks framework.
``tests/engines/test_conformance.py`` is the specification of the seam.
"""
