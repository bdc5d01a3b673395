"""Public training programs, recorded as README says and audited to the end on small data. None of their code is here.

git clone https://github.com/pytorch/examples
git clone https://github.com/karpathy/nanoGPT
git clone https://github.com/pytorch/opacus
python benchmarks/programs.py --clones FOLDER [mnist mnist_rnn vae nanogpt opacus-mnist opacus-lstm] [--budget 2min]

FOLDER holds the clones. Models and training functions are the programs' own; data are handwritten digits of
scikit-learn, enlarged, and random words in place of what the programs download. Prints for each what the audit ended
with: numbers, the attacks that were left out and why, or the sentence with which it was refused. A budget is processor
time, as in budgets.py.
"""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
import time
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from opacus import PrivacyEngine
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import gmip
from gmip import Examples, Recipe, Task

MEMBERS = 200
BLOCK = 32


class Program(NamedTuple):
    """A program: its file in the folder of clones, its data, a model made by its module, and its training."""

    path: str
    data: Callable[[], tuple[Tensor, Tensor]]
    model: Callable[[Any], nn.Module]
    optimizer: Callable[[Any, nn.Module], torch.optim.Optimizer]
    train: Callable[[Any, nn.Module, torch.optim.Optimizer, DataLoader[Any]], None]
    loss: Callable[[Tensor, Tensor], Tensor]
    batch_size: int
    learning_rate: float
    private: bool = False  # whether Opacus' engine makes model, optimizer and loader private, as the program does
    publish: Callable[[Any, nn.Module, Examples], None] | None = None  # what `Task.publish` does, if it is needed


class Nothing:
    """What the programs download data with."""

    def __init__(self, *args: Any, **options: Any) -> None:
        pass

    def __len__(self) -> int:
        return 1


def loaded(path: Path) -> types.ModuleType:
    """The program as a module; what it downloads data with is replaced by an empty stand-in."""
    vision: Any = types.ModuleType("torchvision")
    for name in ("datasets", "transforms", "utils"):
        part: Any = types.ModuleType(f"torchvision.{name}")
        part.MNIST = part.ToTensor = part.save_image = Nothing
        setattr(vision, name, part)
        sys.modules[f"torchvision.{name}"] = part
    sys.modules["torchvision"] = vision
    module = types.ModuleType(path.stem)
    sys.modules[path.stem] = module  # dataclasses ask for it
    given, sys.argv = sys.argv, [str(path), *(["--data-root", "."] if "lstm" in path.stem else [])]
    try:
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), module.__dict__)
    finally:
        sys.argv = given
    return module


def digits() -> tuple[Tensor, Tensor]:
    found = load_digits()
    images = torch.tensor(found.images / 16.0, dtype=torch.float32)[:, None]
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    return functional.interpolate(images, size=(28, 28), mode="bilinear")[order], torch.tensor(found.target)[order]


def texts() -> tuple[Tensor, Tensor]:
    """Blocks of a text with words that repeat, in the codes of its letters; targets are the next letters."""
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdefghijklmno"), rng.integers(2, 8))) for _ in range(300)]
    text = " ".join(rng.choice(words, 40_000))
    codes = torch.tensor([ord(one) - 96 if one != " " else 0 for one in text][: 1200 * (BLOCK + 1)])
    blocks = codes.reshape(1200, BLOCK + 1)
    return blocks[:, :-1].contiguous(), blocks[:, 1:].contiguous()


def pictures() -> tuple[Tensor, Tensor]:
    """Digits that are their own targets."""
    images, _ = digits()
    return images, images.flatten(1)


def names() -> tuple[Tensor, Tensor]:
    """Names of up to 12 letters in one of five languages, which have endings of their own."""
    rng = np.random.default_rng(0)
    languages = rng.integers(0, 5, 1200)
    endings = ("ov", "ini", "sson", "ez", "aki")
    texts = ["".join(rng.choice(list("abcdefghij"), rng.integers(3, 9))) + endings[one] for one in languages]
    codes = [[ord(letter) for letter in text.rjust(12)] for text in texts]
    return torch.tensor(codes), torch.tensor(languages)


def vae(module: Any) -> nn.Module:
    class Reconstruction(module.VAE):  # type: ignore[misc]
        """In eval mode one tensor, without random numbers."""

        def reparameterize(self, mu: Tensor, logvar: Tensor) -> Any:
            return super().reparameterize(mu, logvar) if self.training else mu

        def forward(self, x: Tensor) -> Any:
            found = super().forward(x)
            return found if self.training else torch.cat(found, 1)

    return Reconstruction()


def train_vae(module: Any, model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader[Any]) -> None:
    module.model, module.optimizer, module.train_loader = model, optimizer, loader
    module.train(1)


def reconstructed(found: Tensor, images: Tensor) -> Tensor:
    """The loss of each record, of the answers in eval mode."""
    recon, mu, logvar = found[:, :784], found[:, 784:804], found[:, 804:]
    error = functional.binary_cross_entropy(recon, images, reduction="none").sum(1)
    return error - 0.5 * (1 + logvar - mu.square() - logvar.exp()).sum(1)


def publish_vae(module: Any, model: nn.Module, records: Examples) -> None:
    assert isinstance(records.inputs, Tensor)
    module.loss_function(*(found := model(records.inputs))[:1], records.inputs, *found[1:]).backward()


def name_reader(module: Any) -> nn.Module:
    made: nn.Module = module.CharNNClassifier(module.DPLSTM, 16, 32, 5)
    return made


def sgd(module: Any, model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def adam(module: Any, model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=1e-3)


def train_private(module: Any, model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader[Any]) -> None:
    args = argparse.Namespace(disable_dp=True)
    module.train(args, model, torch.device("cpu"), loader, optimizer, None, 1)


def train_names(module: Any, model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader[Any]) -> None:
    module.train(model, nn.CrossEntropyLoss(), optimizer, loader, 1, None, 1e-5, device="cpu")


def small_net(module: Any) -> nn.Module:
    made: nn.Module = module.SampleConvNet()
    return made


def entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(logits, targets, reduction="none")


class NextLetters(nn.Module):
    """nanoGPT's model, which gives all logits only if it is told targets."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.inner(x, x)[0]
        return found


def gpt(module: Any) -> nn.Module:
    config = module.GPTConfig(block_size=BLOCK, vocab_size=16, n_layer=2, n_head=2, n_embd=32, dropout=0.0, bias=False)
    return NextLetters(module.GPT(config))


def train_gpt(module: Any, model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader[Any]) -> None:
    """Trains as nanoGPT's train.py does: the gradient is clipped as a whole."""
    for inputs, targets in loader:
        optimizer.zero_grad(set_to_none=True)
        letters(model(inputs), targets).mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def letters(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean loss of the letters of each block."""
    return functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none").mean(1)


def train_images(module: Any, model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader[Any]) -> None:
    args = argparse.Namespace(log_interval=10**9, dry_run=False)
    module.train(args, model, torch.device("cpu"), loader, optimizer, 1)


def likelihood(log_probabilities: Tensor, targets: Tensor) -> Tensor:
    return functional.nll_loss(log_probabilities, targets, reduction="none")


def adadelta(module: Any, model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adadelta(model.parameters(), lr=1.0)


def adamw(module: Any, model: nn.Module) -> torch.optim.Optimizer:
    assert isinstance(model, NextLetters)
    inner: Any = model.inner
    made: torch.optim.Optimizer = inner.configure_optimizers(0.1, 1e-3, (0.9, 0.95), "cpu")
    return made


def net(module: Any) -> nn.Module:
    made: nn.Module = module.Net()
    return made


PROGRAMS = {
    "mnist": Program("examples/mnist/main.py", digits, net, adadelta, train_images, likelihood, 64, 1.0),
    "mnist_rnn": Program("examples/mnist_rnn/main.py", digits, net, adadelta, train_images, likelihood, 64, 1.0),
    "vae": Program(
        "examples/vae/main.py", pictures, vae, adam, train_vae, reconstructed, 64, 1e-3, publish=publish_vae
    ),
    "opacus-mnist": Program(
        "opacus/examples/mnist.py", digits, small_net, sgd, train_private, entropy, 64, 0.1, private=True
    ),
    "opacus-lstm": Program(
        "opacus/examples/char-lstm-classification.py",
        *(names, name_reader, sgd, train_names, entropy),
        *(50, 0.1, True),
    ),
    "nanogpt": Program("nanoGPT/model.py", texts, gpt, adamw, train_gpt, letters, 20, 1e-3),
}


def audited(name: str, clones: Path, budget: str, folder: Path) -> str:
    """Records two epochs of a program and audits the record; says how that ended."""
    program = PROGRAMS[name]
    module = loaded(clones / program.path)
    inputs, targets = program.data()
    torch.manual_seed(0)
    model = program.model(module)
    optimizer = program.optimizer(module, model)
    members, others = np.arange(MEMBERS), np.arange(MEMBERS, 2 * MEMBERS)
    few = TensorDataset(inputs[:MEMBERS], targets[:MEMBERS])
    loader: DataLoader[Any] = DataLoader(few, batch_size=program.batch_size, shuffle=True)
    if program.private:
        engine = PrivacyEngine(accountant="rdp")
        private = {"noise_multiplier": 1.0, "max_grad_norm": 1.0}
        model, optimizer, loader = engine.make_private(module=model, optimizer=optimizer, data_loader=loader, **private)
    options: Any = {"data": (inputs, targets), "members": members, "non_members": others, "loader": loader}
    with gmip.record(model, optimizer, folder / name, **options):
        for _ in range(2):
            program.train(module, model, optimizer, loader)
    task = Task(
        name=name,
        make_model=lambda: program.model(module),
        loss=program.loss,
        pool=Examples(inputs, targets),
        test=Examples(inputs[-10:], targets[-10:]),
        recipe=Recipe(dataset_size=MEMBERS, batch_size=program.batch_size, learning_rate=1.0, num_steps=8),
        publish=None if program.publish is None else functools.partial(program.publish, module),
    )
    start = time.perf_counter()
    result = gmip.audit(gmip.Recorded(folder / name, task), budget=budget, out=str(folder / f"audit-{name}"))
    seconds = time.perf_counter() - start
    run = result.runs[0]
    for one in run.left_out:
        print(f"{name}: {one.attack} left out: {one.problem}", file=sys.stderr)
    cut = {True: " (cut)", False: ""}
    attacks = ", ".join(f"{one.attack} {one.auc.value:.3f}{cut[bool(one.cut_short)]}" for one in run.attacks)
    params = sum(p.numel() for p in model.parameters())
    return f"{name}: {params} parameters, {seconds:.0f} s of a budget of {budget}; AUC {attacks}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(PROGRAMS)} (default: all)")
    parser.add_argument("--clones", type=Path, required=True, help="folder with the clones")
    parser.add_argument("--budget", default="2min")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    time.monotonic = time.perf_counter = time.process_time
    with tempfile.TemporaryDirectory() as folder:
        for name in given.names or PROGRAMS:
            try:
                print(audited(name, given.clones, given.budget, Path(folder)), flush=True)
            except gmip.GmipError as error:
                print(f"{name}: {error}", flush=True)


if __name__ == "__main__":
    main()
