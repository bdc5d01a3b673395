"""Accounting: from what will run to the curve that any attacker faces. NumPy and SciPy only."""
