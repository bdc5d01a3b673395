"""Two processes train one model (DistributedDataParallel) and record it.

    torchrun --standalone --nproc-per-node 2 examples/ddp_training.py runs/ddp
    gmip audit breast-cancer --run runs/ddp

Every process calls gmip.record; the first one writes. The sampler says how batches are drawn, and who is in each.
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import gmip

MEMBERS, BATCH_SIZE, EPOCHS, RATE = 60, 20, 4, 0.5


def main(folder: str) -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)  # the same initial model in all processes
    task = gmip.tasks.load("breast-cancer")
    split = task.split(MEMBERS, seed=1)
    data = Subset(TensorDataset(task.pool.inputs, task.pool.targets), split.members.tolist())
    sampler: DistributedSampler[int] = DistributedSampler(data, shuffle=True, seed=2)
    loader = DataLoader(data, batch_size=BATCH_SIZE // dist.get_world_size(), sampler=sampler)

    model = DistributedDataParallel(task.make_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    who = {"members": split.members, "non_members": split.non_members, "data": task}
    with gmip.record(model, optimizer, folder, loader=loader, **who) as recorder:
        for epoch in range(EPOCHS):
            sampler.set_epoch(epoch)
            for inputs, targets in loader:
                optimizer.zero_grad()
                task.loss(model(inputs), targets).mean().backward()
                optimizer.step()
        steps = recorder.num_steps
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} processes took {steps} steps of {BATCH_SIZE} examples each: {folder}")
    dist.barrier()  # nobody hangs up on the others
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
