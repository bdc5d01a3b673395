"""Record your own training loop: three lines, and then ask what the run gave away.

python examples/own_loop.py
"""

from __future__ import annotations

import tempfile

import torch
from sklearn.datasets import load_breast_cancer
from torch import nn

import gmip
from gmip.training import FixedSize


def main() -> None:
    table, labels = load_breast_cancer(return_X_y=True)
    inputs = torch.tensor((table - table.mean(0)) / table.std(0), dtype=torch.float32)
    targets = torch.tensor(labels)
    members = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))[:400]

    torch.manual_seed(0)
    model = nn.Linear(30, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    batches = FixedSize(dataset_size=len(members), batch_size=100, num_steps=20, seed=0)

    with tempfile.TemporaryDirectory() as folder:
        # Two lines: where to, who is in, and what batches look like. The loop itself is as it was.
        about = {"dataset_size": len(members), "batch_size": 100, "members": members, "data": (inputs, targets)}
        with gmip.record(model, optimizer, f"{folder}/run", **about):
            for ids in batches:
                rows = members[torch.from_numpy(ids)]
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(inputs[rows]), targets[rows]).backward()
                optimizer.step()

        # The third: what was run, as the accountant sees it.
        trace = gmip.Trace.open(f"{folder}/run")
        curve = gmip.account(trace.runs())
        print(f"\nYour own loop, {len(trace)} steps recorded: {trace.runs()[0]}")
        print(f"At 1% false alarms an attacker finds at most {curve.tpr_at(0.01):.1%} of the members.")


if __name__ == "__main__":
    main()
