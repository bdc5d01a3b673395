"""The processes that train one model together (DDP, FSDP2): one of them writes, all of them count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, Final, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

from gmip.errors import GmipError, UnsupportedModel

_PATIENCE: Final = timedelta(seconds=120)  # for ranks that are late, until they are taken for missing
_SAME: Final = 1.0e-4  # relative: gradients after a reduction are the same up to the order of a norm's sum
_Made = TypeVar("_Made")


class Ranks:
    """The processes among whom the batch of one step of `model` is divided; one alone outside torch.distributed.

    Raises UnsupportedModel where a model is spread in a way that does not tell who saw which examples.
    """

    _started = 0  # on all ranks the same, as recordings start in the same order

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self.size, self.rank = 1, 0
        self._group: Any = None
        if not (dist.is_available() and dist.is_initialized()):
            return
        self._group = _group(model)
        self.size, self.rank = dist.get_world_size(self._group), dist.get_rank(self._group)
        if self.size != dist.get_world_size():
            raise UnsupportedModel(
                f"The model trains on {self.size} of {dist.get_world_size()} ranks",
                remedy="record with a process group of those ranks alone",
            )
        gloo = "gloo" in str(dist.get_backend_config(self._group))
        self._device = torch.device("cpu") if gloo else next(model.parameters()).device

    @property
    def writes(self) -> bool:
        """Whether this rank is the one that writes the trace."""
        return self.rank == 0

    def start(self, make: Callable[[], _Made]) -> _Made | None:
        """`make()` on the rank that writes, None on the others; what it raises is raised on all of them.

        All ranks must come here: those that wait for a missing one say so after two minutes.
        """
        if self.size == 1:
            return make()
        store, place = dist.distributed_c10d._get_default_store(), f"gmip/record/{Ranks._started}"
        Ranks._started += 1
        store.set(f"{place}/{self.rank}", "here")
        made, failure = None, None
        try:
            store.wait([f"{place}/{rank}" for rank in range(self.size)], _PATIENCE)
        except dist.DistStoreError:
            raise UnsupportedModel(
                f"Not all of the {self.size} ranks came to gmip.record within {_PATIENCE.seconds} s",
                remedy="enter it on every rank (rank 0 writes, the others send it their batch sizes)",
            ) from None
        if not self.writes:
            problem = store.get(f"{place}/outcome").decode()
            if problem:
                raise UnsupportedModel(f"Rank 0 could not begin to record: {problem}")
            return None
        try:
            made = make()
        except GmipError as error:
            failure = error
        store.set(f"{place}/outcome", "" if failure is None else str(failure))
        if failure is not None:
            raise failure
        return made

    def sizes(self, own: int | None, gradients: Iterable[Tensor]) -> list[int | None]:
        """What each rank says of its share of the step; None if it does not know.

        Raises UnsupportedModel if the ranks are about to step with different gradients (compared by their norm).
        """
        if self.size == 1:
            return [own]
        if getattr(getattr(self._model, "_join_config", None), "enable", False):
            raise UnsupportedModel(
                "Inside DDP's join() a rank without batches takes no step, so the ranks cannot say how many examples a "
                "step averages",
                remedy="give every rank the same number of batches (DistributedSampler does)",
            )
        held = [g.detach() for g in gradients if not hasattr(g, "full_tensor")]  # a sharded one is the same for all
        norm = float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(held)).double())) if held else 0.0
        mine = torch.tensor([-1.0 if own is None else own, norm], dtype=torch.float64, device=self._device)
        all_of = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(all_of, mine, group=self._group)
        found = torch.stack(all_of).tolist()
        norms = [rank[1] for rank in found]
        if max(norms) - min(norms) > _SAME * max(norms):
            raise UnsupportedModel(
                f"The {self.size} ranks are about to step with different gradients (of norms {min(norms):.6g} to "
                f"{max(norms):.6g}), so no rank's step is that of all their examples",
                remedy="wrap the model in DistributedDataParallel, or leave the process group before recording a "
                "model that one rank trains alone",
            )
        return [None if rank[0] < 0.0 else int(rank[0]) for rank in found]

    def joined(self, ids: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
        """The ids of all ranks, one rank after the other; None if one of them does not know its own."""
        if self.size == 1:
            return ids
        length = torch.tensor([-1 if ids is None else ids.size], device=self._device)
        lengths = [torch.empty_like(length) for _ in range(self.size)]
        dist.all_gather(lengths, length, group=self._group)
        counts = [int(one) for one in lengths]
        if ids is None or min(counts) < 0:
            return None
        padded = torch.zeros(max(counts), dtype=torch.int64, device=self._device)
        padded[: ids.size] = torch.from_numpy(ids.copy()).to(self._device)
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(parts, padded, group=self._group)
        return np.concatenate([part[:k].cpu().numpy() for part, k in zip(parts, counts, strict=True)])

    @staticmethod
    def whole(tensor: Tensor) -> Tensor:
        """The tensor itself, or all of one that is sharded: then every rank must ask, in the same order."""
        gather: Any = getattr(tensor, "full_tensor", None)
        return tensor if gather is None else gather()


def _group(model: nn.Module) -> Any:
    """The group of the ranks that share a batch; None is the group of all."""
    if any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules()):
        raise UnsupportedModel(
            "FullyShardedDataParallel flattens parameters, so no gradient in it has a name",
            remedy="shard the model with FSDP2's fully_shard, which is recorded, or wrap it in DistributedDataParallel",
        )
    meshes = {mesh for p in model.parameters() if (mesh := getattr(p, "device_mesh", None)) is not None}
    if any(mesh.ndim > 1 or mesh.size() != dist.get_world_size() for mesh in meshes):
        raise UnsupportedModel(
            "Parameters are sharded over a device mesh of more than one dimension, or of fewer ranks than there are, "
            "so it is not known which ranks share their examples",
            remedy="shard with fully_shard over all ranks, in one dimension",
        )
    from torch.distributed.fsdp import FSDPModule

    sharded: list[Any] = [module for module in model.modules() if isinstance(module, FSDPModule)]
    for module in sharded:
        for group in getattr(module._get_fsdp_state(), "_fsdp_param_groups", ()):
            if getattr(group, "gradient_divide_factor", None) not in (None, dist.get_world_size()):
                raise UnsupportedModel(
                    f"Gradients are divided by {group.gradient_divide_factor:g} (set_gradient_divide_factor), not by "
                    f"the {dist.get_world_size()} ranks, so they are not the mean over these",
                    remedy="leave the factor as it is",
                )
    if meshes and not sharded:
        raise UnsupportedModel(
            "Parameters are sharded without fully_shard (tensor parallelism), where ranks share examples, not batches",
            remedy="shard with fully_shard",
        )
    return getattr(model, "process_group", None)


def uneven_shares(shares: Sequence[int]) -> UnsupportedModel:
    """The error for ranks whose mean losses are averaged though they saw different numbers of examples."""
    return UnsupportedModel(
        f"The ranks saw {', '.join(map(str, shares))} examples in a step and their mean losses are averaged, so that "
        "examples of the smaller shares weigh more, which no accounting here covers",
        remedy="drop what does not fill the ranks evenly (`drop_last`=True), or sum the loss on each rank and pass "
        "`loss_reduction` = 'sum', or pass 'global_mean' if the loop divides by the examples of all ranks",
    )
