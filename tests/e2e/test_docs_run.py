"""Every block of Python in README and docs runs, page by page, after what its page takes for granted."""

from __future__ import annotations

import contextlib
import io
import warnings
from pathlib import Path
from typing import Any

import pytest

from gmip import GateFailed
from tests.e2e import follow

pytest.importorskip("torch", reason="needs gmip[audit]")
pytestmark = pytest.mark.slow
ROOT = follow.ROOT
PAGES = {
    page.relative_to(ROOT).as_posix(): page
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if "tutorials" not in page.parts and any(block.language == "python" for block in follow.blocks(page))
}

RUN = """
import gmip
from gmip.tasks import load
task = load("{task}")
recipe = gmip.Recipe(dataset_size=40, batch_size=20, num_steps=4, learning_rate=0.5)
gmip.train(task, recipe, seed=1, out="runs/a")
trace = gmip.Trace.open("runs/a")
ids = sorted([*trace.members, *trace.non_members])
background = task.pool[[row for row in range(len(task.pool)) if row not in set(ids)][:400]]
"""
LOOP = """
import numpy as np, torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset
import gmip
from gmip.tasks import load
torch.manual_seed(0)
task = load("breast-cancer")
model = task.make_model()
members, others = list(range(40)), list(range(40, 80))
member_rows, other_rows = members, others
x, y = task.pool.inputs, task.pool.targets
dataset = Subset(TensorDataset(x, y), members)
loader = DataLoader(dataset, batch_size=20, shuffle=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss = nn.CrossEntropyLoss()
def train(model, optimizer, loader):
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss(model(inputs), targets).backward()
        optimizer.step()
"""
TABLES = """
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier as Forest
import gmip
RandomForestClassifier = lambda trees: Forest(5)  # a hundred take longer
rng = np.random.default_rng(0)
X, y = (one[:120] for one in load_breast_cancer(return_X_y=True))
member_scores, non_member_scores = rng.normal(1, 1, 200), rng.normal(0, 1, 200)
a, b, c, d = member_scores, member_scores + 1, non_member_scores, non_member_scores
for name in ("a.csv", "b.csv"):
    with open(name, "w") as file:
        print("member,score", *(f"{k % 2},{rng.normal()}" for k in range(200)), sep="\\n", file=file)
data_frame = {"member": np.arange(200) % 2, "loss": rng.normal(size=200), "lira": rng.normal(size=200)}
"""
PROJECT = """
import shutil, sys
shutil.copy("{root}/examples/{file}", "my_project.py")
sys.path.insert(0, "")
sys.modules.pop("my_project", None)
from my_project import make_model, make_task
sys.path.pop(0)
task = make_task()
"""
# What a page takes for granted: the reader's own model, data, loop and files.
GRANTED = {
    "README.md": LOOP,
    "docs/index.md": RUN.format(task="digits"),
    "docs/attacks.md": RUN.format(task="digits"),
    "docs/audit.md": RUN.format(task="digits")
    + TABLES
    + """
member, p, q = np.arange(120) % 2, rng.random((120, 2)), rng.random((4, 120, 2))
inside = np.arange(120) % 2 == np.arange(4)[:, None] % 2
p, q = p / p.sum(-1, keepdims=True), q / q.sum(-1, keepdims=True)
with open("predictions.csv", "w") as file:
    rows = (f"{k % 2},{k % 3 == 0:d},{u},{1 - u}" for k, u in enumerate(rng.random(120)))
    print("member,label,p_0,p_1", *rows, sep="\\n", file=file)
""",
    "docs/canaries.md": LOOP
    + """
from opacus import PrivacyEngine
model = torch.nn.Linear(30, 60)
model, optimizer, loader = PrivacyEngine().make_private(
    module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), data_loader=loader, noise_multiplier=1.1,
    max_grad_norm=1.0)
rate = 20 / 40
def step(inputs, targets):
    optimizer.zero_grad()
    loss(model(inputs), targets).backward()
    optimizer.step()
""",
    "docs/counterfactual.md": RUN.format(task="breast-cancer")
    + "model, inputs = task.make_model(), task.pool.inputs[:5]\n",
    "docs/deleted.md": TABLES
    + """
y = np.arange(400) % 2
names = [f"P{k}" for k in range(400)]
p_new, p_old, *p_retrained = (lambda u: np.stack([u, 1 - u], -1))(rng.random((6, 400)))
requests, controls = [1] * 200, [0] * 200
""",
    "docs/frameworks.md": LOOP
    + PROJECT.format(root=ROOT, file="transformers_trainer.py")
    + """
from transformers import Trainer, TrainingArguments
arguments = {"output_dir": "trainer", "use_cpu": True, "optim": "sgd", "save_strategy": "no", "report_to": []}
model, args = make_model(), TrainingArguments(per_device_train_batch_size=20, disable_tqdm=True, **arguments)
# next block
import shutil; shutil.rmtree("runs")
"""
    + PROJECT.format(root=ROOT, file="lightning_trainer.py")
    + """
from my_project import Classifier
lit, data = Classifier(), Subset(TensorDataset(task.pool.inputs, task.pool.targets), members)
# next block
from accelerate import Accelerator
shutil.rmtree("runs")
task, accelerator = load("breast-cancer"), Accelerator(cpu=True)
model = task.make_model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
# next block
shutil.rmtree("runs")
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo", init_method="file://" + __import__("os").path.abspath("meet"), rank=0, world_size=1)
model, N, n = task.make_model(), 40, 20
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
# next block
dist.destroy_process_group()
raise StopIteration  # Flower has an environment of its own: tests/unit/integrations/test_flower.py
# next block
raise StopIteration  # as above
""",
    "docs/glir.md": RUN.format(task="digits"),
    "docs/opacus.md": LOOP,
    "docs/rehearsal.md": LOOP
    + PROJECT.format(root=ROOT, file="my_project.py")
    + """
import os
from safetensors.torch import save_file
pool, test, recipe = task.pool, task.test, task.recipe
augment = lambda inputs: inputs
os.mkdir("checkpoints")
task.pool.inputs
net = make_model()
optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
for epoch in range(3):
    save_file(net.state_dict(), f"checkpoints/epoch-{epoch}.safetensors")
    for rows in torch.randperm(200).split(50):
        optimizer.zero_grad()
        loss(net(pool.inputs[rows]), pool.targets[rows]).backward()
        optimizer.step()
for name, rows in (("members", range(200)), ("others", range(200, 400))):
    with open(f"{name}.csv", "w") as file:
        print(*rows, sep="\\n", file=file)
""",
    "docs/released-models.md": RUN.format(task="digits")
    + TABLES
    + """
candidates = ids
x, y, members, listed = X / X.max(0), y, np.arange(40), np.arange(80)
""",
    "docs/report.md": TABLES + 'gmip.write_report(gmip.audit(gmip.Scores(a, c)), "reports/a")\n',
    "docs/text-models.md": LOOP
    + PROJECT.format(root=ROOT, file="lora_language_model.py")
    + """
recipe = gmip.Recipe(dataset_size=40, batch_size=20, num_steps=4, learning_rate=0.5)
gmip.train(task, recipe, seed=1, out="runs/text")
trace = gmip.Trace.open("runs/text")
""",
}


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {"__name__": "page"}
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")  # Opacus' and ours: that a few steps are few
        granted = iter(GRANTED.get(page, "").split("# next block\n"))
        for block in follow.blocks(PAGES[page]):
            if block.language != "python":
                continue
            with contextlib.suppress(StopIteration):
                exec(next(granted, ""), space)
                with contextlib.suppress(GateFailed):  # what the page says of its last line
                    exec(compile(block.text, page, "exec"), space)
