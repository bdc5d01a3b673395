from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from gmip.cli import main
from gmip.errors import DataUnavailable
from tests.e2e.cli import Outcome


@pytest.fixture
def run(capsys, monkeypatch):
    """`gmip` in this process: fast."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setattr("gmip.cli.show._SOON", 600.0)  # a busy machine is no reason to speak up

    def call(*argv: str) -> Outcome:
        capsys.readouterr()
        code = main(argv)
        out, err = capsys.readouterr()
        return Outcome(code, re.sub(r"\x1b\[[0-9;]*m", "", out), err)  # typer colours its help on some CI machines

    return call


@pytest.fixture
def answer(run):
    """The JSON answer of a command that must succeed."""

    def call(*argv: str) -> dict[str, Any]:
        outcome = run(*argv, "--json")
        assert (outcome.code, outcome.err) == (0, "")

        def refuse(constant: str) -> None:
            raise AssertionError(f"{constant} is not JSON")

        result = json.loads(outcome.out, parse_constant=refuse)
        assert isinstance(result, dict)
        return result

    return call


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium."""
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not on PATH: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def cifar10() -> Any:
    """The task with the first 6,000 of its images: the features of all take four CPU minutes."""
    pytest.importorskip("torch", reason="training needs the extra gmip[train]")
    import torch

    from gmip.tasks import Examples, Task
    from gmip.tasks import builtin as module
    from gmip.tasks.data_files import read_files
    from gmip.vocabulary import Recipe

    try:
        (content,), model = read_files(module.CIFAR10_FILES[0]), module.pretrained_resnet56()
    except DataUnavailable as missing:
        pytest.skip(str(missing))
    images, labels = (part[:6_000] for part in module.parse_images(content))
    pool = Examples(module.resnet56_features(model, images), torch.from_numpy(labels))
    return Task(
        name="part of cifar10",
        make_model=partial(torch.nn.Linear, module.RESNET56_FEATURES, 10),
        pool=pool,
        test=pool[range(10)],
        recipe=Recipe(
            dataset_size=500, batch_size=500, num_steps=1, optimizer="Adam", learning_rate=2e-3, sampling="full"
        ),
    )


@pytest.fixture(scope="session")
def whole_cifar10() -> None:
    """CIFAR-10 where GMIP_CACHE has the features of all its images, as after `make reproduce`."""
    from gmip.tasks import builtin as module
    from gmip.tasks import load

    def missing() -> None:
        pytest.skip("GMIP_CACHE lacks the features of CIFAR-10, which take four CPU minutes: make reproduce keeps them")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "pretrained_resnet56", missing)
        try:
            load("cifar10")
        except DataUnavailable as error:
            pytest.skip(str(error))
