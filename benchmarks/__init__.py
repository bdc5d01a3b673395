"""Benchmarks: scripts of their own (`python benchmarks/NAME.py`), and studies such as `python -m benchmarks.value`."""
