"""Sources: what can be audited, each of which yields the same `Evidence`."""
