"""What two ranks do in `test_ranks`, under torchrun: several recordings, and the sentences of those that are refused.

torchrun --nproc-per-node 2 ranks_script.py FOLDER
"""

from __future__ import annotations

import json
import runpy
import sys
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from opacus import PrivacyEngine
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel as PrivateDDP
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from gmip.errors import GmipError
from gmip.training import ranks, record
from tests.unit.training.recording import (
    LR,
    Batch,
    N,
    batches_of,
    dataset,
    loss_of,
    make_model,
    n,
    plain_loop,
    sgd,
)

EVEN, UNEVEN = (8, 8, 4), (8, 8, 5)
CLIP, NOISE = 0.8, 1.3


def share(batch: Batch, rank: int) -> Batch:
    """Every other example; of five the first rank has three."""
    return batch[0][rank::2], batch[1][rank::2]


def shares(sizes: tuple[int, ...]) -> list[Batch]:
    return [share(batch, dist.get_rank()) for batch in batches_of(*sizes)]


def ddp(out: Path) -> None:
    model = DistributedDataParallel(make_model())
    optimizer = sgd(model)
    with record(model, optimizer, out, dataset_size=N, batch_size=n, sampling="shuffled") as recorder:
        plain_loop(model, optimizer, shares(EVEN))
        assert recorder.num_steps == 3
        recorder.sync()


def inner_model(out: Path) -> None:
    """The recorder is handed the model inside; only the wrapper runs."""
    model = make_model()
    wrapped = DistributedDataParallel(model)
    optimizer = sgd(model)
    with record(model, optimizer, out, dataset_size=N, batch_size=n, sampling="shuffled"):
        plain_loop(wrapped, optimizer, shares(EVEN))


def accumulated(out: Path) -> None:
    model = DistributedDataParallel(make_model())
    optimizer = sgd(model)
    with record(model, optimizer, out, dataset_size=N, batch_size=n, sampling="shuffled"):
        for x, y in shares((8, 8)):
            optimizer.zero_grad()
            with model.no_sync():
                (loss_of(model, (x[:2], y[:2])) / 2).backward()
            (loss_of(model, (x[2:], y[2:])) / 2).backward()
            optimizer.step()


def uneven_mean(out: Path) -> None:
    model = DistributedDataParallel(make_model())
    optimizer = sgd(model)
    with record(model, optimizer, out, dataset_size=N, batch_size=n, sampling="shuffled"):
        plain_loop(model, optimizer, shares(UNEVEN))


def uneven_sum(out: Path) -> None:
    """SGD on the sum divided by the ranks: the rate makes the step of a mean of it, so that the runs are comparable."""
    model = DistributedDataParallel(make_model())
    optimizer = sgd(model)
    with record(model, optimizer, out, dataset_size=N, batch_size=n, sampling="shuffled", loss_reduction="sum"):
        for batch, size in zip(shares(UNEVEN), UNEVEN, strict=True):
            optimizer.param_groups[0]["lr"] = LR * 2 / size
            plain_loop(model, optimizer, [batch], "sum")


def uneven_global_mean(out: Path) -> None:
    model = DistributedDataParallel(make_model())
    optimizer = sgd(model)
    with record(model, optimizer, out, dataset_size=N, batch_size=n, sampling="shuffled", loss_reduction="global_mean"):
        for batch, size in zip(shares(UNEVEN), UNEVEN, strict=True):
            optimizer.zero_grad()
            (loss_of(model, batch, "sum") * 2 / size).backward()
            optimizer.step()


def sharded(out: Path) -> None:
    model = make_model()
    fully_shard(model.body)
    fully_shard(model)
    optimizer = sgd(model)
    with record(model, optimizer, out, dataset_size=N, batch_size=n, sampling="shuffled", every=2):
        plain_loop(model, optimizer, shares(EVEN))


def sharded_and_clipped(out: Path) -> None:
    """With the ids of each rank's examples."""
    model = make_model()
    fully_shard(model)
    optimizer = sgd(model)
    with record(model, optimizer, out, dataset_size=N, batch_size=n, sampling="shuffled") as recorder:
        for number, batch in enumerate(shares((8, 8))):
            recorder.batch(ids=torch.arange(8 * number, 8 * number + 8)[dist.get_rank() :: 2])
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()


def private(out: Path) -> None:
    """Batches of other sizes than Opacus expects."""
    torch.manual_seed(3)
    model: Any = PrivateDDP(make_model())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Opacus' about its random numbers, torch's about hooks
        model, optimizer, _ = PrivacyEngine().make_private(
            module=model,
            optimizer=sgd(model),
            data_loader=DataLoader(TensorDataset(*dataset()), batch_size=n),
            noise_multiplier=NOISE if out.name == "private_noise" else 0.0,
            max_grad_norm=CLIP,
            poisson_sampling=False,
        )
        size = round(float(optimizer.expected_batch_size)) * 2
        with record(model, optimizer, out, dataset_size=N, batch_size=size, sampling="shuffled"):
            plain_loop(model, optimizer, shares((6, 6, 5)))


private_noise = private


def different_gradients(out: Path) -> None:
    model = make_model()
    optimizer = sgd(model)
    with record(model, optimizer, out, dataset_size=N, batch_size=n, sampling="shuffled"):
        plain_loop(model, optimizer, shares(EVEN))


def joined(out: Path) -> None:
    model = DistributedDataParallel(make_model())
    optimizer = sgd(model)
    with model.join(), record(model, optimizer, out, dataset_size=N, batch_size=n, sampling="shuffled"):
        plain_loop(model, optimizer, shares(EVEN))


def flattened(out: Path) -> None:
    model = FullyShardedDataParallel(make_model(), device_id=torch.device("cpu"))
    record(model, sgd(model), out, dataset_size=N, batch_size=n, sampling="shuffled")


def other_factor(out: Path) -> None:
    model: Any = fully_shard(make_model())
    model.set_gradient_divide_factor(1.0)
    record(model, sgd(model), out, dataset_size=N, batch_size=n, sampling="shuffled")


def folder_in_the_way(out: Path) -> None:
    model = DistributedDataParallel(make_model())
    with record(model, sgd(model), out.parent / "ddp", dataset_size=N, batch_size=n, sampling="shuffled"):
        pass


def one_rank_alone(out: Path) -> None:
    """The other rank does not record."""
    model = DistributedDataParallel(make_model())
    if dist.get_rank() == 0:
        vars(ranks)["_PATIENCE"] = timedelta(seconds=1)
        with record(model, sgd(model), out, dataset_size=N, batch_size=n, sampling="shuffled"):
            pass


RECORDED: tuple[Callable[[Path], None], ...] = (
    ddp,
    inner_model,
    accumulated,
    uneven_sum,
    uneven_global_mean,
    sharded,
    sharded_and_clipped,
    private,
)
REFUSED = (uneven_mean, different_gradients, joined, flattened, other_factor, folder_in_the_way, one_rank_alone)


EXAMPLE = Path(__file__).parents[3] / "examples" / "ddp_training.py"


def main(folder: Path) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=300))
    # A second group under the same torchrun may find the addresses of the first: the example shares this one.
    with mock.patch.object(dist, "init_process_group"), mock.patch.object(dist, "destroy_process_group"):
        runpy.run_path(str(EXAMPLE))["main"](str(folder / "example"))
    said: dict[str, str] = {}
    for loop in RECORDED:
        loop(folder / loop.__name__)
    private_noise(folder / "private_noise")
    for loop in REFUSED:
        try:
            loop(folder / loop.__name__)
        except GmipError as error:
            said[loop.__name__] = str(error)
        dist.barrier()
    (folder / f"said-{dist.get_rank()}.json").write_text(json.dumps(said), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
