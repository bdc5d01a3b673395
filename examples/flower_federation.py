"""A Flower federation that is recorded, audited and accounted for.

    python examples/flower_federation.py          (needs pip install 'gmip[audit,flower]')

Five hospitals train one model on 50 of scikit-learn's breast cancer patients. In each round every hospital takes one
step of SGD on its own 10 patients and Flower's FedAvg averages the models (FedSGD): to all who see the models it is as
if the mean gradient of all patients were published. Then the same for a federation of 400 clients whose updates Flower
clips and adds noise to.

The clients are called in this process; `flwr run` would start them elsewhere, and the strategy would be the same.
"""

from __future__ import annotations

import logging
import math
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from flwr.supercore.task_identity import TaskIdentity

import gmip
from gmip.integrations.flower import GmipStrategy, clients_run

HOSPITALS, PATIENTS, ROUNDS, RATE = 5, 50, 30, 0.5


class LocalGrid(Grid):  # type: ignore[misc]
    """Clients 0, 1, ... in this process."""

    run: Any = None

    def __init__(self, app: ClientApp, num_clients: int) -> None:
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 0
        self._app, self._num_clients = app, num_clients

    def set_run(self, run: Any) -> None: ...

    def get_node_ids(self) -> Iterable[int]:
        return range(1, self._num_clients + 1)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return [self._app(message, self._context(message.metadata.dst_node_id)) for message in messages]

    def _context(self, node: int) -> Context:
        settings = {"partition-id": node - 1}
        return Context(run_id=1, node_id=node, node_config=settings, state=RecordDict(), run_config={})

    def create_message(self, *args: Any, **options: Any) -> Message:
        raise NotImplementedError

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError


def make_client(task: gmip.Task, shares: list[Any]) -> ClientApp:
    """Client k has the patients shares[k] and takes one step on them."""
    app = ClientApp()

    @app.train()  # type: ignore[untyped-decorator]
    def train(message: Message, context: Context) -> Message:
        own = task.pool[shares[context.node_config["partition-id"]]]
        model = task.make_model()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        task.loss(model(own.inputs), own.targets).mean().backward()
        optimizer.step()
        content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": len(own)})}
        return Message(content=RecordDict(content), reply_to=message)

    return app


def main(folder: Path) -> None:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    torch.manual_seed(0)
    task = gmip.tasks.load("breast-cancer")
    split = task.split(PATIENTS, seed=1)
    model = task.make_model()

    with GmipStrategy(
        FedAvg(fraction_evaluate=0.0, min_train_nodes=HOSPITALS, min_available_nodes=HOSPITALS),
        model,
        folder / "run",
        unit="examples",
        dataset_size=PATIENTS,
        batch_size=PATIENTS,
        sampling="full",
        learning_rate=RATE,
        members=split.members,
        non_members=split.non_members,
        data=task,
    ) as strategy:
        shares = [split.members[k::HOSPITALS] for k in range(HOSPITALS)]
        grid = LocalGrid(make_client(task, shares), HOSPITALS)
        strategy.start(grid, ArrayRecord(model.state_dict()), num_rounds=ROUNDS)

    result = gmip.audit(task, runs=[folder / "run"], attacks=["glir"], seed=0)
    found = result.runs[0].attacks[0]
    print(f"{PATIENTS} patients of {HOSPITALS} hospitals, {ROUNDS} rounds: GLiR's AUC is {found.auc.value:.2f}.")

    private = DifferentialPrivacyServerSideFixedClipping(
        FedAvg(fraction_train=0.1), noise_multiplier=1.0, clipping_norm=0.5, num_sampled_clients=40
    )
    described = clients_run(private, num_clients=400, num_rounds=100, num_params=model)
    for notion, whom in (("gmip", "a typical client"), ("gdp", "any client (differential privacy)")):
        curve = gmip.account(described, notion=notion)
        print(f"400 clients, 100 private rounds: at a 1% false-alarm rate {whom} is found at most "
              f"{math.ceil(1000 * curve.tpr_at(0.01)) / 10:.1f}% of the time.")  # fmt: skip


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as place:
            main(Path(place))
