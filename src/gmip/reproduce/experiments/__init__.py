"""One module for each experiment; `gmip.reproduce.base.Experiment` says what it must have."""
