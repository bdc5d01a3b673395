"""The built-in tasks: digits, breast-cancer, location, adult, purchase and cifar10."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gmip._progress import Progress, bars
from gmip.store import Entry
from gmip.tasks.data_files import DataFile, cache_store, only_member, read_files
from gmip.tasks.task import Examples, Task, cross_entropy
from gmip.vocabulary import Recipe

# -- what the tabular tasks share -------------------------------------------------------------------------------------


def examples(inputs: NDArray[Any], labels: NDArray[np.integer]) -> Examples:
    """Inputs as float32, labels as int64: what cross-entropy takes."""
    return Examples(torch.from_numpy(inputs.astype(np.float32)), torch.from_numpy(labels.astype(np.int64)))


def random_split(rows: int, test_rows: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sorted row numbers of pool and test, the same for the same arguments on every machine."""
    order = np.random.default_rng(seed).permutation(rows)
    return np.sort(order[test_rows:]), np.sort(order[:test_rows])


def scaling(table: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of each column, shape (columns,); 1 for the deviation of a constant one."""
    std = table.std(axis=0, dtype=np.float64)
    return table.mean(axis=0, dtype=np.float64), np.where(std > 0.0, std, 1.0)


def labelled_bits(content: bytes) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Labels of shape (n,) and columns of 0 and 1 of shape (n, k), from lines such as `"13",0,1,1` or `13,0,1,1`."""
    lines = [line.partition(b",") for line in content.splitlines()]
    labels = np.array([int(label.strip(b'"')) for label, _, _ in lines])
    return labels, np.array([np.frombuffer(row, np.uint8)[::2] for _, _, row in lines]) - np.uint8(ord("0"))


# -- handwritten digits, 8x8 pixels -----------------------------------------------------------------------------------


def digits() -> Task:
    """1,797 digits: pool of 1,437, test of 360, pixels from 0 to 1, linear softmax model with d = 650."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    pool, test = random_split(len(labels), 360, seed=0)
    return Task(
        name="digits",
        make_model=partial(nn.Linear, 64, 10),
        pool=examples(pixels[pool] / 16.0, labels[pool]),
        test=examples(pixels[test] / 16.0, labels[test]),
        # Few enough members that the rest of the pool can serve an audit as non-members and background.
        recipe=Recipe(dataset_size=250, batch_size=125, num_steps=40, learning_rate=3.0, clip_norm=1.0),
    )


# -- wisconsin breast cancer (diagnostic) -----------------------------------------------------------------------------


def _breast_cancer_model() -> nn.Module:
    return nn.Sequential(nn.Linear(30, 16), nn.Tanh(), nn.Linear(16, 2))


def breast_cancer() -> Task:
    """569 patients: pool of 455, test of 114, 30 columns standardised with the pool's statistics, tanh network with one
    hidden layer of 16, d = 530."""
    from sklearn.datasets import load_breast_cancer

    table, labels = load_breast_cancer(return_X_y=True)
    pool, test = random_split(len(labels), 114, seed=0)
    mean, std = scaling(table[pool])
    table = (table - mean) / std
    return Task(
        name="breast-cancer",
        make_model=_breast_cancer_model,
        pool=examples(table[pool], labels[pool]),
        test=examples(table[test], labels[test]),
        recipe=Recipe(dataset_size=200, batch_size=40, num_steps=150, learning_rate=0.2, clip_norm=2.0),
    )


# -- location-30: which kind of user visited which places? ------------------------------------------------------------


LOCATION_FILE = DataFile(
    title="Location-30",
    path="location/dataset_location.tgz",
    checksum="sha256:927203f85a868f8ee17a0ded1dc61699efe602167beabe34fbf45b4b1de94b33",
    url="https://github.com/privacytrustlab/datasets/raw/master/dataset_location.tgz",
)


def _location_model() -> nn.Module:
    return nn.Sequential(nn.Linear(446, 64), nn.Tanh(), nn.Linear(64, 30))


def location() -> Task:
    """5,010 users in 30 classes: pool of 4,010, test of 1,000, 446 columns of 0 and 1, tanh network with one hidden
    layer of 64, d = 30,558."""
    (archive,) = read_files(LOCATION_FILE)
    labels, bits = labelled_bits(only_member(archive))
    pool, test = random_split(len(labels), 1_000, seed=0)
    labels -= 1  # published as 1 to 30
    return Task(
        name="location",
        make_model=_location_model,
        pool=examples(bits[pool], labels[pool]),
        test=examples(bits[test], labels[test]),
        recipe=Recipe(dataset_size=1_600, batch_size=100, num_steps=320, learning_rate=0.5, clip_norm=4.0),
    )


# -- adult: does a person of the 1994 census earn more than 50,000 dollars? -------------------------------------------


_ADULT_URL = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult"
ADULT_FILES = tuple(
    DataFile(title="Adult", path=f"adult/{name}", checksum=f"sha256:{digest}", url=f"{_ADULT_URL}/{name}")
    for name, digest in (
        ("adult.test", "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"),
        ("adult.data", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"),
    )
)
_FIELDS = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship"),
    *("race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income"),
)
_LEFT_OUT = ("fnlwgt", "education", "income")  # a sampling weight, a copy of education-num, the target
_LOGARITHMIC = ("capital-gain", "capital-loss")
_NUMERIC = ("age", "education-num", "hours-per-week", *_LOGARITHMIC)
_ADULT_FEATURES = 512
_ADULT_TEST_ROWS = 5_000


def parse_adult(content: bytes) -> list[tuple[str, ...]]:
    """The 15 fields of each row. The heading of adult.test and empty lines are passed over."""
    lines = [line for line in content.decode("ascii").splitlines() if line.strip() and not line.startswith("|")]
    return [tuple(value.strip() for value in line.split(",")) for line in lines]


def encode_adult(rows: list[tuple[str, ...]]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Twelve columns, shape (n, 12), and labels, shape (n,), 1 for more than 50,000 dollars.

    A category is its place in the alphabetical order of those that occur, "?" (unknown) among them; capital gain and
    loss are log10(1 + x).
    """
    fields = dict(zip(_FIELDS, zip(*rows, strict=True), strict=True))
    columns = []
    for name, values in fields.items():
        if name in _LEFT_OUT:
            continue
        if name in _NUMERIC:
            column = np.array(values, dtype=np.float64)
            columns.append(np.log10(1.0 + column) if name in _LOGARITHMIC else column)
        else:
            codes = {value: float(code) for code, value in enumerate(sorted(set(values)))}
            columns.append(np.array([codes[value] for value in values]))
    # adult.test ends its labels with a full stop.
    return np.stack(columns, axis=1), np.array([value.rstrip(".") == ">50K" for value in fields["income"]], np.int64)


def random_features(table: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """tanh of 512 random linear functions, drawn as torch initialises nn.Linear: shape (n, 512)."""
    generator = torch.Generator().manual_seed(seed)
    bound = 1.0 / math.sqrt(table.shape[1])
    weight = torch.empty(_ADULT_FEATURES, table.shape[1]).uniform_(-bound, bound, generator=generator)
    bias = torch.empty(_ADULT_FEATURES).uniform_(-bound, bound, generator=generator)
    # In double precision, so that rounding to single hides how a machine orders its sums.
    outputs: Tensor = torch.tanh(torch.from_numpy(table) @ weight.double().T + bias.double())
    return outputs.numpy()


def adult() -> Task:
    """48,842 people, adult.test before adult.data: the first 5,000 are the test, the other 43,842 the pool; linear head
    on 512 features with d = 1026. The columns are standardised with the pool's statistics."""
    table, labels = encode_adult([row for content in read_files(*ADULT_FILES) for row in parse_adult(content)])
    mean, std = scaling(table[_ADULT_TEST_ROWS:])
    features = random_features((table - mean) / std, seed=0)
    return Task(
        name="adult",
        make_model=partial(nn.Linear, _ADULT_FEATURES, 2),
        pool=examples(features[_ADULT_TEST_ROWS:], labels[_ADULT_TEST_ROWS:]),
        test=examples(features[:_ADULT_TEST_ROWS], labels[:_ADULT_TEST_ROWS]),
        # Sizes and clip_norm: the paper's utility experiment, 20 epochs.
        recipe=Recipe(
            dataset_size=43_000,
            batch_size=1_000,
            num_steps=860,
            learning_rate=1.0e-2,
            optimizer="Adam",
            clip_norm=800.0,
        ),
    )


# -- purchase: which of 20 kinds of customer? -------------------------------------------------------------------------


PURCHASE_FILE = DataFile(
    title="Purchase-100",
    path="purchase/dataset_purchase.tgz",
    checksum="git-blob:3efa7476ad5ed7ac3e558d28585a186b38fc5f19",
    url="https://github.com/privacytrustlab/datasets/raw/master/dataset_purchase.tgz",
)
_PURCHASE_CLASSES = 20
_PURCHASE_FEATURES = 128
_PURCHASE_TEST_ROWS = 10_000
_PURCHASE_EPOCHS = 5
_PURCHASE_BATCH = 256
_PURCHASE_VERSION = "1"  # to be raised when the features of the same file change


def purchase() -> Task:
    """Rows of the 20 most frequent classes, the first 10,000 of them as test; linear head on 128 features, d = 2580."""
    return build_purchase(PURCHASE_FILE, test_rows=_PURCHASE_TEST_ROWS)


def build_purchase(file: DataFile, *, test_rows: int, read: Callable[[DataFile], Sequence[bytes]] = read_files) -> Task:
    """The task from a file in the format of Purchase-100, which `read` gets.

    The features come from a network that was trained on the rows of the other classes, and from their scaling: no
    record of pool or test has a part in them. They are computed once (less than a minute) and kept in the cache folder.
    """
    records = _purchase_examples(file, read)
    pool = Examples(records.inputs[test_rows:], records.targets[test_rows:])
    # The paper's utility experiment, 3 epochs; but at least 1% of the pool must stay outside.
    members = min(54_855, len(pool) * 99 // 100)
    batch = min(795, members)
    return Task(
        name="purchase",
        make_model=partial(nn.Linear, _PURCHASE_FEATURES, _PURCHASE_CLASSES),
        pool=pool,
        test=Examples(records.inputs[:test_rows], records.targets[:test_rows]),
        recipe=Recipe(
            dataset_size=members,
            batch_size=batch,
            num_steps=3 * members // batch,
            learning_rate=5.0e-3,
            optimizer="Adam",
            clip_norm=2000.0,
        ),
    )


def divide_classes(labels: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row numbers of the 20 most frequent classes (of equally frequent ones those with the smaller label), and of the
    others, both in the order of the file."""
    values, counts = np.unique(labels, return_counts=True)
    kept = values[np.argsort(-counts, kind="stable")[:_PURCHASE_CLASSES]]
    inside = np.isin(labels, kept)
    return np.flatnonzero(inside), np.flatnonzero(~inside)


def pretrain(inputs: Tensor, targets: Tensor, *, seed: int) -> nn.Sequential:
    """A three-layer network on the public part, without its last layer: inputs of shape (n, k) -> (n, 128).

    The same arguments give the same network (up to the rounding of another machine or number of threads); torch's
    global generator is left as it was.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        body = nn.Sequential(nn.Linear(inputs.shape[1], 256), nn.Tanh(), nn.Linear(256, _PURCHASE_FEATURES), nn.Tanh())
        model = nn.Sequential(body, nn.Linear(_PURCHASE_FEATURES, int(targets.max()) + 1))
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0e-3)
    with bars() as watch:
        progress = watch("Purchase: pre-training")
        for epoch in range(_PURCHASE_EPOCHS):
            order = torch.randperm(len(inputs), generator=generator)
            for start in range(0, len(inputs), _PURCHASE_BATCH):
                rows = order[start : start + _PURCHASE_BATCH]
                optimizer.zero_grad()
                torch.autograd.backward(cross_entropy(model(inputs[rows]), targets[rows]).mean())
                optimizer.step()
                progress(epoch * len(inputs) + start + len(rows), _PURCHASE_EPOCHS * len(inputs))
    return body.requires_grad_(False).eval()


def _purchase_examples(file: DataFile, read: Callable[[DataFile], Sequence[bytes]]) -> Examples:
    """Records of the kept classes, in the order of the file."""

    def make() -> Entry:
        (archive,) = read(file)
        labels, bits = labelled_bits(only_member(archive))
        private, public = divide_classes(labels)
        mean, std = scaling(bits[public])
        model = pretrain(_scaled(bits[public], mean, std), _codes(labels[public]), seed=0)
        features = model(_scaled(bits[private], mean, std))
        return Entry({"features": features.numpy(), "labels": _codes(labels[private]).numpy()})

    found = cache_store("purchase", {"file": file.checksum}, _PURCHASE_VERSION).compute("examples", make)
    return Examples(torch.from_numpy(found.arrays["features"]), torch.from_numpy(found.arrays["labels"]))


def _scaled(bits: NDArray[np.uint8], mean: NDArray[np.float64], std: NDArray[np.float64]) -> Tensor:
    return torch.from_numpy((bits - mean.astype(np.float32)) / std.astype(np.float32))


def _codes(labels: NDArray[np.int64]) -> Tensor:
    """Labels as 0, 1, 2, ... in ascending order."""
    return torch.from_numpy(np.unique(labels, return_inverse=True)[1].astype(np.int64))


# -- the cifar-100 resnet-56 whose frozen features the cifar-10 task is built on --------------------------------------


RESNET56_FEATURES = 64
RESNET56_WEIGHTS = DataFile(
    title="ResNet-56 for CIFAR-100",
    path="weights/cifar100_resnet56-f2eff4c8.pt",
    checksum="sha256:f2eff4c8461ca1e0d39af83a65f7243bf7d29ec421efee3064bcee93a3caaa73",
    url="https://github.com/chenyaofo/pytorch-cifar-models/releases/download/resnet/cifar100_resnet56-f2eff4c8.pt",
)
# Mean and std of the red, green and blue values of CIFAR-100, with which the published weights were trained.
_CIFAR100_MEAN = (0.5070, 0.4865, 0.4409)
_CIFAR100_STD = (0.2673, 0.2564, 0.2761)
_RESNET56_BATCH = 100


class _Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = (
            nn.Identity()
            if inputs == outputs
            else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        )

    def forward(self, x: Tensor) -> Tensor:
        inner = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(inner + self.downsample(x))


def _stage(inputs: int, outputs: int) -> nn.Sequential:
    """Nine blocks; the first halves the image where it widens the channels."""
    first = _Block(inputs, outputs, stride=1 if inputs == outputs else 2)
    return nn.Sequential(first, *(_Block(outputs, outputs, stride=1) for _ in range(8)))


class ResNet56(nn.Module):
    """Normalised images of shape (n, 3, 32, 32) -> logits of shape (n, classes)."""

    def __init__(self, classes: int = 100) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(16, 16)
        self.layer2 = _stage(16, 32)
        self.layer3 = _stage(32, RESNET56_FEATURES)
        self.fc = nn.Linear(RESNET56_FEATURES, classes)

    def embed(self, x: Tensor) -> Tensor:
        """What the last layer sees, shape (n, 64)."""
        x = torch.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return x.mean(dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.embed(x))
        return logits


def pretrained_resnet56() -> ResNet56:
    """The published weights, frozen and in eval mode: BatchNorm uses its stored statistics and mixes no examples."""
    (content,) = read_files(RESNET56_WEIGHTS)
    model = ResNet56()
    model.load_state_dict(torch.load(io.BytesIO(content), map_location="cpu", weights_only=True), strict=True)
    return model.requires_grad_(False).eval()


def resnet56_features(model: ResNet56, images: NDArray[np.uint8], *, progress: Progress | None = None) -> Tensor:
    """Features of images of shape (n, 3, 32, 32) with values 0 to 255: float32, shape (n, 64).

    `progress` is called with the number of images after every batch.
    """
    mean, std = torch.tensor(_CIFAR100_MEAN)[:, None, None], torch.tensor(_CIFAR100_STD)[:, None, None]
    parts = []
    with torch.no_grad():
        for start in range(0, len(images), _RESNET56_BATCH):
            batch = images[start : start + _RESNET56_BATCH]
            pixels = torch.from_numpy(batch.astype(np.float32)) / 255.0
            # With channels last, the convolutions take a quarter less time on a CPU.
            parts.append(model.embed(((pixels - mean) / std).contiguous(memory_format=torch.channels_last)))
            if progress is not None:
                progress(start + len(batch), len(images))
    return torch.cat(parts) if parts else torch.empty(0, RESNET56_FEATURES)


# -- cifar-10 ---------------------------------------------------------------------------------------------------------


_CIFAR10_MD5 = {
    "data_batch_1": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
CIFAR10_FILES = tuple(
    DataFile(
        title="CIFAR-10",
        path=f"cifar-10-batches-bin/{name}.bin",
        checksum=f"md5:{digest}",
        url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        archive_checksum="sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    )
    for name, digest in _CIFAR10_MD5.items()
)
_PER_FILE = 10_000
_PER_PART = 5_000  # what an interruption loses at most
_CIFAR10_VERSION = "1"  # to be raised when the features of the same files change


def parse_images(content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images of shape (n, 3, 32, 32) and labels of shape (n,) from the binary format: a byte of label, then 3,072 of
    red, green and blue rows."""
    rows = np.frombuffer(content, dtype=np.uint8).reshape(-1, 1 + 3 * 32 * 32)
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0].astype(np.int64)


def cifar10() -> Task:
    """CIFAR-10 on 64 frozen features: pool of 50,000, test of 10,000, linear head with d = 650.

    The features (a few minutes on two cores) are computed once and kept in the cache folder, in parts.
    """
    examples = _cifar10_examples()
    return Task(
        name="cifar10",
        make_model=partial(nn.Linear, RESNET56_FEATURES, 10),
        pool=Examples(examples.inputs[:50_000], examples.targets[:50_000]),
        test=Examples(examples.inputs[50_000:], examples.targets[50_000:]),
        # Sizes and clip_norm: the paper's utility experiment, 10 epochs.
        recipe=Recipe(
            dataset_size=48_000,
            batch_size=400,
            num_steps=1_200,
            learning_rate=2.0e-3,
            optimizer="Adam",
            clip_norm=500.0,
        ),
    )


def _overall(progress: Progress, part: int, parts: int, done: int, total: int) -> None:
    """Progress within one part, reported as progress over all parts."""
    progress(part * total + done, parts * total)


def _cifar10_examples() -> Examples:
    """All 60,000 records, file by file. Images are read only where a part of the features is missing."""
    store = cache_store("cifar10", {"weights": RESNET56_WEIGHTS.checksum}, _CIFAR10_VERSION)
    places = [(file, start) for file in CIFAR10_FILES for start in range(0, _PER_FILE, _PER_PART)]
    keys = {place: {"file": place[0].checksum, "rows": [place[1], place[1] + _PER_PART]} for place in places}
    parts = {place: store.get(keys[place]) for place in places}
    missing = [place for place in places if parts[place] is None]
    if missing:
        needed = list(dict.fromkeys(file for file, _ in missing))
        contents = dict(zip(needed, read_files(*needed), strict=True))
        model = pretrained_resnet56()
        with bars() as watch:
            progress = watch("CIFAR-10: features")
            for number, place in enumerate(missing):
                file, start = place
                images, labels = parse_images(contents[file])
                rows = slice(start, start + _PER_PART)
                within = partial(_overall, progress, number, len(missing))
                found = resnet56_features(model, images[rows], progress=within).numpy()
                parts[place] = part = Entry({"features": found, "labels": labels[rows]})
                store.put(keys[place], *part)
    done = [part.arrays for part in parts.values() if part is not None]
    inputs, targets = (np.concatenate([part[name] for part in done]) for name in ("features", "labels"))
    return Examples(torch.from_numpy(inputs), torch.from_numpy(targets))
