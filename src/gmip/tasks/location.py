"""Location-30: which kind of user visited which places, a standard set of membership-inference papers."""

from __future__ import annotations

from torch import nn

from gmip.tasks.records import examples, labelled_bits, random_split
from gmip.tasks.sources import DataFile, only_member, read
from gmip.tasks.task import Task
from gmip.vocabulary import Recipe

__all__ = ["FILE", "location"]

FILE = DataFile(
    title="Location-30",
    path="location/dataset_location.tgz",
    checksum="sha256:927203f85a868f8ee17a0ded1dc61699efe602167beabe34fbf45b4b1de94b33",
    url="https://github.com/privacytrustlab/datasets/raw/master/dataset_location.tgz",
)


def _make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(446, 64), nn.Tanh(), nn.Linear(64, 30))


def location() -> Task:
    """5,010 users in 30 classes: pool of 4,010, test of 1,000, 446 columns of 0 and 1, tanh network with one hidden
    layer of 64, d = 30,558."""
    (archive,) = read(FILE)
    labels, bits = labelled_bits(only_member(archive, FILE), FILE.title)
    pool, test = random_split(len(labels), 1_000, seed=0)
    labels -= 1  # published as 1 to 30
    return Task(
        name="location",
        make_model=_make_model,
        pool=examples(bits[pool], labels[pool]),
        test=examples(bits[test], labels[test]),
        recipe=Recipe(dataset_size=1_600, batch_size=100, num_steps=320, learning_rate=0.5, clip_norm=4.0),
    )
