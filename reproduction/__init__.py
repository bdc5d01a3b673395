"""The experiments of the paper, run again: published and measured numbers compared, as CSV files, figures and one page.

Run it from the root of the repository with `python -m reproduction`, or `make reproduce`.
"""
