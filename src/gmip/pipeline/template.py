"""The annotated audit.yaml that `gmip init` writes; a test reads it back and compares with the defaults."""

from __future__ import annotations

from typing import Final

__all__ = ["TEMPLATE"]

TEMPLATE: Final = """\
# Settings of a membership audit: gmip audit audit.yaml
# Every line shows its default; remove or change what you like. Unknown settings are refused.

# What is audited: a built-in task (digits, breast-cancer, cifar10, adult, purchase, location), or your own as
# path/to/file.py:make_task, a function that returns a gmip.tasks.Task (see docs/tasks.md).
task: digits

# The runs, side by side in one report. A recorded one by its folder (from gmip train or gmip.record):
#   - {name: as deployed, path: runs/a}
# or one to train for the audit: the task's recipe, with changes and a privacy target where you want them:
#   - {name: no noise}
#   - {name: GMIP, target_mu: 2.0}
#   - {name: GDP, target_mu: 2.0, notion: gdp}
#   - {name: larger batches, recipe: {batch_size: 200, learning_rate: 1.0}}
runs:
  - {}

# Attacks: glir, loss, lira, rmia, cfd, cfd-lrt, seed (gmip attacks says what each needs). With options:
#   - {name: glir, options: {method: likelihood-ratio}}
# Empty: glir and loss; on noisy runs also glir-no-noise and glir-no-clip, which find noise and clipping that do not do
# what they should; on recorded runs of gmip train also seed.
attacks: []

# At most so many members, and as many non-members, are attacked.
candidates: 2000

# Runs of the same recipe with other seeds, in all. Members of one run share its gradients, so their scores are not
# independent; from 5 repeats on the intervals measure that.
repeats: 1

# Seed of the audit: of runs that it trains, of candidates and resampling. null: drawn afresh, and kept in the folder.
seed: null

# Where report.html, report.md, result.json and the work in progress go.
out: audit

# Confidence of intervals, bounds and verdict.
confidence: 0.95

# For lower bounds on epsilon.
delta: 1.0e-5

# False-positive rates at which the members found are reported.
fprs: [0.001, 0.01, 0.1]

# What was promised, as mu-GMIP. null: what the accountant says about the run.
claim_mu: null

# What you would like to hold: the report says which noise or batch size gives it.
target_tpr: 0.05@0.01

# A gate for pipelines: exit code 1 if the lower bound of the TPR at that FPR exceeds it, such as 0.05@0.01.
fail_above_tpr: null

# Shadow models, for lira, rmia and cfd-lrt. backend: local, dask (with scheduler_address) or ray.
shadows:
  count: 64
  seed: 0
  folder: null
  workers: null
  backend: local
  scheduler_address: null

# Of the report. null: made from the task's name.
title: null
"""
