"""Train with Opacus; its accountant then reports membership inference as well as epsilon.

    python examples/opacus_accountant.py

A linear classifier on scikit-learn's breast cancer data: 569 people, 62 parameters, Poisson batches. Bounds are rounded
up.
"""

from __future__ import annotations

import math
import warnings

import torch
from opacus import PrivacyEngine
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_breast_cancer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from gmip.integrations.opacus import GmipAccountant  # importing it registers "gmip"

BATCH_SIZE, EPOCHS, NOISE_MULTIPLIER, DELTA = 64, 10, 1.0, 1e-4

# What Opacus and torch say in every run: noise for production needs secure_mode, and the first layer has a hook.
warnings.filterwarnings("ignore", "Secure RNG turned off", UserWarning)
warnings.filterwarnings("ignore", "Full backward hook is firing", UserWarning)


def up(value: float, decimals: int) -> str:
    """Rounded up: a bound must not look better than it is."""
    scale = 10**decimals
    return f"{math.ceil(value * scale - 1e-9) / scale:.{decimals}f}"


def main() -> None:
    console = Console(highlight=False)
    values, labels = load_breast_cancer(return_X_y=True)
    # These means come from the same people and are not accounted for: in real use, take them from public data.
    inputs = torch.tensor((values - values.mean(0)) / values.std(0), dtype=torch.float32)
    dataset = TensorDataset(inputs, torch.tensor(labels))
    generator = torch.Generator().manual_seed(0)

    engine = PrivacyEngine(accountant="gmip")
    linear = nn.Linear(30, 2)
    nn.init.zeros_(linear.weight)
    model, optimizer, loader = engine.make_private(
        module=linear,
        optimizer=torch.optim.SGD(linear.parameters(), lr=0.5),
        data_loader=DataLoader(dataset, batch_size=BATCH_SIZE, generator=generator),
        noise_multiplier=NOISE_MULTIPLIER,
        max_grad_norm=1.0,
        noise_generator=generator,
    )
    accountant = engine.accountant
    assert isinstance(accountant, GmipAccountant)

    table = Table("epoch", "steps", "epsilon (DP)", "mu (GDP)", "mu (GMIP)")
    for epoch in range(1, EPOCHS + 1):
        for batch, targets in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(batch), targets).backward()
            optimizer.step()
        if epoch in (1, 2, 5, EPOCHS):
            table.add_row(
                str(epoch),
                str(len(accountant)),
                up(engine.get_epsilon(DELTA), 2),
                up(accountant.get_mu(dataset_size=len(dataset), num_params=model, notion="gdp"), 3),
                up(accountant.get_mu(dataset_size=len(dataset), num_params=model), 3),
            )
    console.print(table)

    with torch.no_grad():
        right = (model(inputs).argmax(1) == dataset.tensors[1]).double().mean().item()
    console.print(f"Training accuracy {right:.1%}; epsilon is at delta = {DELTA:g}.")

    curve = accountant.get_tradeoff(dataset_size=len(dataset), num_params=model)
    dp = accountant.get_tradeoff(dataset_size=len(dataset), num_params=model, notion="gdp")
    console.print(
        f"At a 1% false-alarm rate, an attacker finds a typical record at most {up(100 * curve.tpr_at(0.01), 1)}% of "
        f"the time, and any record at most {up(100 * dp.tpr_at(0.01), 1)}% of the time (differential privacy)."
    )
    for sentence in curve.assumptions:
        console.print(f"- {sentence}", style="dim", markup=False)


if __name__ == "__main__":
    main()
