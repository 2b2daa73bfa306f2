"""Benchmarks: one short script per question, on the harness in ``helper.py``. ``python -m bench`` lists them."""
