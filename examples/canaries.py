"""Plant canaries into a training loop of your own, and test its differential privacy with one run.

    python examples/canaries.py

A model is trained by DP-SGD, written out in plain torch: clip, add noise, average. Once it is sound; once the noise is
forgotten in one line. 500 canaries take part in both, each by a fair coin. The audit compares what they reveal with
what was claimed, (epsilon, delta) = (4, 1e-5), and says so in a sentence.
"""

from __future__ import annotations

import torch
from opacus.accountants.utils import get_noise_multiplier
from sklearn.datasets import load_digits
from torch import nn

from gmip.canaries import DirectionCanaries
from gmip.report import answer_words

EPSILON, DELTA = 4.0, 1.0e-5
CLIP_NORM, BATCH_SIZE, STEPS = 1.0, 200, 60


def train(canaries: DirectionCanaries, *, forget_noise: bool) -> None:
    torch.manual_seed(0)
    data = load_digits()
    x, y = torch.tensor(data.data, dtype=torch.float32) / 16.0, torch.tensor(data.target)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    rate = BATCH_SIZE / len(x)
    multiplier = get_noise_multiplier(
        target_epsilon=EPSILON, target_delta=DELTA, sample_rate=rate, steps=STEPS, accountant="prv"
    )
    parameters = list(model.parameters())
    with canaries.attached(model, optimizer, sample_rate=rate, clip_norm=CLIP_NORM, batch_size=BATCH_SIZE):
        for _ in range(STEPS):
            batch = torch.nonzero(torch.rand(len(x)) < rate)[:, 0]
            total = [torch.zeros_like(p) for p in parameters]
            for i in batch:
                loss = nn.functional.cross_entropy(model(x[i : i + 1]), y[i : i + 1])
                gradient = torch.autograd.grad(loss, parameters)
                norm = torch.sqrt(sum((g**2).sum() for g in gradient))
                for sum_of, g in zip(total, gradient, strict=True):
                    sum_of += g * min(1.0, CLIP_NORM / float(norm))
            for p, sum_of in zip(parameters, total, strict=True):
                noise = 0.0 if forget_noise else multiplier * CLIP_NORM * torch.randn_like(p)
                p.grad = (sum_of + noise) / BATCH_SIZE
            optimizer.step()


def main() -> None:
    for forget_noise in (False, True):
        canaries = DirectionCanaries(500, seed=1)
        train(canaries, forget_noise=forget_noise)
        run = canaries.audit(claim=(EPSILON, DELTA)).runs[0]
        print("Noise forgotten:" if forget_noise else "With the noise:")
        print(f"  {answer_words.verdict_headline(run)}")
        print(f"  mu at least {run.attacks[0].mu_lower:.2f}")


if __name__ == "__main__":
    main()
