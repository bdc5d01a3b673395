"""Bridges to other libraries: thin, optional, each loaded only by those who import it."""
