"""What djqueue uses of other projects beyond their documented interfaces, one module per project.

Each name has a test in ``tests/test_adapters.py`` that says what djqueue relies on, and what to do when an upgrade removes it.
"""
