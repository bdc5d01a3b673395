from __future__ import annotations

import torch
from torch import nn

from gmip.tasks.inputs import masked_token_loss, next_token_loss


def test_the_mean_over_the_tokens_that_are_asked_for() -> None:
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(3, 5, 7, generator=generator), torch.randint(0, 7, (3, 5), generator=generator)
    labels[1, 3:], labels[2] = -100, -100
    found = next_token_loss(logits, labels)
    for row, last in ((0, 5), (1, 3)):
        each = [nn.functional.cross_entropy(logits[row, t - 1], labels[row, t]) for t in range(1, last)]
        torch.testing.assert_close(found[row], torch.stack(each).mean())
    assert found.shape == (3,) and found[2] == 0.0


def test_masked_tokens_are_predicted_where_they_stand() -> None:
    generator = torch.Generator().manual_seed(1)
    logits, labels = torch.randn(3, 4, 7, generator=generator), torch.full((3, 4), -100)
    labels[0, 0], labels[0, 3], labels[1, 2] = 5, 1, 6
    expected = [
        -logits.log_softmax(2)[row, places, labels[row, places]].mean() for row, places in ((0, [0, 3]), (1, 2))
    ]
    found = masked_token_loss(logits, labels)
    torch.testing.assert_close(found, torch.stack([*expected, torch.tensor(0.0)]))
