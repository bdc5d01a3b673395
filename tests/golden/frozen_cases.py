"""What gmip answers, frozen: audits of all kinds, accounts and calibrations, a tuned recipe, a reproduced table.

    python -m tests.golden.frozen_cases            compare with tests/golden/frozen/*.json and say what differs
    python -m tests.golden.frozen_cases --write    freeze what comes out today

Kinds (audits, accounts, ...) may follow, to compute these alone. Everything is small and seeded, and the clock stands
still for whatever gmip does by the clock (advice, tables of what would be, attacks). Numbers may differ by a millionth:
processors and libraries round differently.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

FOLDER: Final = Path(__file__).parent / "frozen"
_TOLERANCE: Final = 2.0e-5  # of a number; three kinds of processors differed by 1e-5 at most (errors of exact curves)
_ROUNDING: Final = (
    1.0e-6  # float32 gradients that are computed again differ by this much, and what is left of them is noise
)

Case = Callable[[], dict[str, Any]]
Cases = dict[str, Case]

# -- audits -----------------------------------------------------------------------------------------------------------

_N, _WIDTH, _CLASSES = 40, 8, 3
_RUN: Final = {"dataset_size": _N, "batch_size": 10, "num_steps": 8, "learning_rate": 0.5}
_SECRET: Final = 2**40  # beyond the seeds that an attack tries
_CLIPPED: Final = {"clip_norm": 1.0, "noise_std": 0.1}


class Workshop:
    """Trained runs, in a folder: each is trained once, when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def task(self) -> Any:
        """Three clouds in eight dimensions, a linear model of 27 parameters; two sites, of which one is harder."""
        import torch
        from torch import nn

        from gmip import Examples, Recipe, Task

        generator = torch.Generator().manual_seed(0)
        labels = torch.randint(0, _CLASSES, (360,), generator=generator)
        inputs = torch.randn(360, _WIDTH, generator=generator)
        inputs[:, :_CLASSES] += nn.functional.one_hot(labels, _CLASSES)
        data = Examples(inputs, labels)
        return Task(
            name="clouds",
            make_model=lambda: nn.Linear(_WIDTH, _CLASSES),
            pool=data[range(300)],
            test=data[range(300, 360)],
            recipe=Recipe(**_RUN),
            groups={"site": ["north" if row % 3 else "south" for row in range(300)]},
        )

    def trained(self, name: str, **changes: Any) -> Path:
        from gmip import train

        folder = self.folder / name
        if not folder.exists():
            train(self.task, self.task.recipe.replace(**changes), seed=_SECRET, out=folder)
        return folder

    def fixed(self) -> Path:
        return self.trained("fixed")

    def noise_drawn_once(self) -> Path:
        """A loop written by hand, with a fault."""
        from tests.unit.auditing.faulty_runs import Fault, Setting, record_run

        folder = self.folder / "reused"
        setting = Setting(dataset_size=_N, batch_size=10, num_steps=10, sampling="fixed", **_CLIPPED)
        record_run(self.task, folder, setting, Fault(noise="reused"), seed=3)
        return folder


def audits(folder: Path) -> Cases:
    """Name -> an audit, projected."""
    import numpy as np

    import gmip
    from tests.golden.frozen_names import project_audit

    made = Workshop(folder)

    def recorded(run: Callable[[], Path], **settings: Any) -> Case:
        return lambda: project_audit(gmip.audit(made.task, runs=[run()], seed=5, budget="none", **settings))

    def tabled(source: Callable[[], Any], **settings: Any) -> Case:
        return lambda: project_audit(gmip.audit(source(), **settings))

    shadows = {"count": 4, "seed": 1, "folder": str(folder / "shadows"), "workers": 1}
    return {
        "recorded, Poisson batches, noise": recorded(
            lambda: made.trained("poisson-noise", sampling="poisson", clip_norm=1.0, noise_std=0.4),
            attacks=["glir", "decode", "loss"],
        ),
        "recorded, full batches, noise that guarantees the target": recorded(
            lambda: made.trained("full-noise", sampling="full", num_steps=8, clip_norm=0.2, noise_std=0.01),
            attacks=["loss"],
            target="tpr=0.95@0.01",
        ),
        "failed check: noise drawn once": recorded(made.noise_drawn_once, attacks=["loss"]),
        "groups of the task": recorded(made.fixed, attacks=["glir"], group_by="site", fprs=[0.05, 0.2]),
        "shadow models": recorded(made.fixed, attacks=["lira", "rmia"], shadows=shadows, attacker="predictions"),
        "released weights": lambda: project_audit(
            gmip.audit(made.task, runs=[released(made)], seed=5, budget="none", group_by="class")
        ),
        "scores file, groups and a claim": tabled(
            lambda: gmip.Scores(score_file(folder)), claim=(1.0, 1.0e-5), gate=True
        ),
        "scores, constant": tabled(lambda: gmip.Scores(np.ones(60), np.ones(60)), claim=1.0, gate=True),
        "predictions file, reference models": tabled(lambda: gmip.Predictions(prediction_file(folder)), gate=True),
        "estimator": lambda: project_audit(estimator()),
        "canaries, directions": lambda: project_audit(planted_directions(made)),
    }


def released(made: Workshop) -> dict[str, Any]:
    """Weights that know their members too well, and rows of the pool."""
    import torch
    from safetensors.torch import save_file

    task = made.task
    torch.manual_seed(4)
    model = task.make_model()
    members = task.pool[range(_N)]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(300):
        optimizer.zero_grad()
        task.loss(model(members.inputs), members.targets).mean().backward()
        optimizer.step()
    path = made.folder / "released.safetensors"
    save_file(model.state_dict(), path)
    return {"model": str(path), "members": list(range(_N)), "non_members": list(range(_N, 2 * _N))}


def score_file(folder: Path) -> Path:
    """Two attacks, two groups, of which one leaks."""
    import numpy as np

    rng = np.random.default_rng(1)
    path = folder / "scores.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "member", "group", "strong_score", "weak_score"])
        for number in range(240):
            member, old = number % 2, number % 3 == 0
            shift = member * (2.0 if old else 0.3)
            strong, weak = rng.normal(shift, 1.0), round(float(rng.normal(0.2 * member, 1.0)), 1)
            rows.writerow([f"person {number}", member, "old" if old else "young", repr(float(strong)), weak])
    return path


def prediction_file(folder: Path) -> Path:
    """Probabilities of two classes by a model and by four reference models that know who was in."""
    import numpy as np

    rng = np.random.default_rng(6)
    path = folder / "predictions.csv"
    references = [f"ref_{name}" for name in "abcd"]
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        columns = [f"{name}_{part}" for name in references for part in ("p_0", "p_1", "in")]
        rows.writerow(["member", "label", "p_0", "p_1", *columns])
        for number in range(160):
            member, label, hard = number % 2, int(rng.integers(2)), rng.normal()
            cells: list[Any] = []
            for place in range(5):
                inside = member if place == 0 else int((number + place) % 2)
                logit = 1.0 + hard + 1.2 * inside + 0.4 * rng.normal()
                right = 1.0 / (1.0 + math.exp(-logit))
                pair = [right, 1.0 - right] if label == 0 else [1.0 - right, right]
                cells += [*map(repr, map(float, pair)), *([] if place == 0 else [inside])]
            rows.writerow([member, label, *cells])
    return path


def estimator() -> Any:
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    import gmip

    rng = np.random.default_rng(8)
    features = rng.normal(size=(80, 6))
    labels = (features[:, 0] + 0.5 * rng.normal(size=80) > 0.0).astype(int)
    made = LogisticRegression(C=100.0, tol=1.0e-8, max_iter=1000)
    return gmip.audit(gmip.Estimator(made, features, labels, shadows=4), seed=3, claim=0.5, gate=True)


def planted_directions(made: Workshop) -> Any:
    import gmip
    from gmip.canaries import DirectionCanaries

    task = made.task
    wide = gmip.Task(
        name="wide", make_model=lambda: _wide(), pool=task.pool, test=task.test, recipe=task.recipe.replace(**_CLIPPED)
    )
    canaries = DirectionCanaries(40, seed=9)
    gmip.train(wide, seed=4, canaries=canaries)
    return canaries.audit(claim=(3.0, 1.0e-5))


def _wide() -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(_WIDTH, 8), nn.Tanh(), nn.Linear(8, _CLASSES))


# -- accounts and calibrations ----------------------------------------------------------------------------------------


def accounts(folder: Path) -> Cases:
    """Name -> an account or a calibration, projected."""
    import numpy as np

    from gmip import NoisySGD, PrivacyTarget, account, calibrate
    from gmip.accounting.alternatives import alternatives
    from tests.golden.frozen_names import project_account, project_runs, project_step, project_ways

    base = NoisySGD(dataset_size=2000, batch_size=100, num_steps=60, num_params=300, clip_norm=2.0, noise_std=0.02)
    quiet = base.replace(noise_std=0.0)
    poisson, quiet_poisson = base.replace(sampling="poisson"), quiet.replace(sampling="poisson")
    full = base.replace(sampling="full", batch_size=2000, num_steps=20, noise_std=0.001)
    shuffled = base.replace(sampling="shuffled", dataset_size=600, num_steps=12)
    two_batches = shuffled.replace(dataset_size=200, num_steps=2)
    bare = NoisySGD(dataset_size=48000, batch_size=400, num_steps=1200, num_params=650)
    spread = np.geomspace(50.0, 3000.0, 7)
    schedule = [base, base.replace(num_steps=20, noise_std=0.05, batch_size=200)]

    def of(run: Any, **options: Any) -> Case:
        def found() -> dict[str, Any]:
            curve = project_account(account(run, **options))
            step = {name: value for name, value in options.items() if name != "composition"}
            numbers = isinstance(step.get("susceptibility", 1.0), float) and isinstance(run, NoisySGD)
            return curve | (project_step(run, **step) if numbers else {})

        return found

    def ways(**target: Any) -> Any:
        return alternatives(base, PrivacyTarget(**target))

    def to(run: Any, solve_for: str = "noise_std", hold: str = "steps", **options: Any) -> Case:
        targets = ("target_mu", "target_tpr", "target_advantage", "target_epsilon", "delta")

        def found() -> dict[str, Any]:
            met = calibrate(run, solve_for=solve_for, hold=hold, **options)
            runs: Sequence[NoisySGD] = [met] if isinstance(met, NoisySGD) else met
            whose = {name: value for name, value in options.items() if name not in targets}
            return project_runs(runs) | project_account(account(runs, **whose))

        return found

    return {
        "account: fixed": of(base),
        "account: fixed, no noise": of(quiet),
        "account: fixed, no clipping": of(bare),
        "account: Poisson": of(poisson),
        "account: Poisson, no noise": of(quiet_poisson),
        "account: full": of(full),
        "account: full, no noise": of(full.replace(noise_std=0.0)),
        "account: shuffled": of(shuffled),
        "account: shuffled, no noise": of(shuffled.replace(noise_std=0.0)),
        "account: shuffled, one epoch, a last batch that is smaller": of(shuffled.replace(batch_size=160, num_steps=4)),
        "account: a number": of(base, susceptibility=900.0),
        "account: a number, full": of(full, susceptibility=900.0),
        "account: an array": of(base, susceptibility=spread),
        "account: an array, shuffled": of(shuffled, susceptibility=spread[:2]),
        "account: any record, one step": of(base.replace(num_steps=1), susceptibility="any"),
        "account: any record, Poisson": of(poisson, susceptibility="any"),
        "account: any record, full": of(full, susceptibility="any"),
        "account: any record, shuffled": of(two_batches, susceptibility="any"),
        "account: any record, shuffled, all other members known": of(
            two_batches, susceptibility="any", attacker_knows=1.0
        ),
        "account: any record that stays the same": of(base, susceptibility="any-constant"),
        "account: half of the members known": of(base, attacker_knows=0.5),
        "account: half of the members known, no noise": of(quiet, attacker_knows=0.5),
        "account: half of the members known, Poisson": of(poisson, attacker_knows=0.5),
        "account: all other members known": of(base, attacker_knows=1.0),
        "account: all other members known, shuffled": of(shuffled, attacker_knows=1.0),
        "account: by the paper": of(base, bound="paper"),
        "account: by the paper, central limit": of(base, bound="paper", composition="clt"),
        "account: central limit": of(base, composition="clt"),
        "account: a number, by the paper, half known": of(
            base, bound="paper", composition="clt", susceptibility=500.0, attacker_knows=0.5
        ),
        "account: differential privacy, fixed": of(base, notion="gdp"),
        "account: differential privacy, Poisson": of(poisson, notion="gdp"),
        "account: differential privacy, full": of(full, notion="gdp"),
        "account: differential privacy, shuffled": of(shuffled, notion="gdp"),
        "account: differential privacy, central limit": of(base, notion="gdp", composition="clt"),
        "account: schedule": of(schedule),
        "account: schedule, differential privacy": of(schedule, notion="gdp"),
        "account: schedule, an array": of(schedule, susceptibility=spread[:3]),
        "calibrate: mu": to(base, target_mu=0.3),
        "calibrate: mu, by the paper": to(
            bare.replace(clip_norm=500.0), target_mu=0.4, bound="paper", composition="clt"
        ),
        "calibrate: mu, nothing needed": to(bare, target_mu=2.0),
        "calibrate: TPR": to(base, target_tpr=(0.02, 0.01)),
        "calibrate: TPR, Poisson, half known": to(poisson, target_tpr=(0.05, 0.01), attacker_knows=0.5),
        "calibrate: TPR, shuffled": to(shuffled, target_tpr=(0.03, 0.01)),
        "calibrate: TPR, full, an array": to(full, target_tpr=(0.02, 0.01), susceptibility=spread[:2]),
        "calibrate: advantage": to(base, target_advantage=0.05),
        "calibrate: epsilon": to(base, target_epsilon=1.0, delta=1.0e-5),
        "calibrate: epsilon, differential privacy, Poisson": to(
            poisson, target_epsilon=3.0, delta=1.0e-5, notion="gdp"
        ),
        "calibrate: mu, differential privacy, fixed": to(base, target_mu=1.0, notion="gdp", composition="clt"),
        "calibrate: steps": to(base, "num_steps", target_tpr=(0.02, 0.01)),
        "calibrate: batch size": to(quiet.replace(num_steps=20), "batch_size", target_mu=1.3),
        "calibrate: batch size, epochs held": to(
            quiet.replace(num_steps=20), "batch_size", "epochs", target_mu=1.0, composition="clt"
        ),
        "calibrate: schedule": to(schedule, target_tpr=(0.02, 0.01)),
        "ways: TPR": lambda: project_ways(ways(target_tpr=(0.014, 0.01))),
        "ways: TPR, all known": lambda: project_ways(ways(target_tpr=(0.1, 0.01), attacker_knows=1.0)),
    }


# -- a tuned recipe, a reproduced table -------------------------------------------------------------------------------


def recipes(folder: Path) -> Cases:
    """A recipe tuned by number of trials."""
    from gmip import tune
    from tests.golden.frozen_names import project_tuned
    from tests.unit.tuning.toy import toy_task

    def tuned() -> dict[str, Any]:
        space = {"batch_size": [20, 40], "num_steps": [5, 10], "sampling": "fixed", "optimizer": "SGD"}
        found = tune(
            toy_task(), target_tpr=(0.05, 0.01), space=space, trials=24, split_seed=1, seed=2, workers=1, folder=folder
        )
        return project_tuned(found)

    return {"two clouds, fixed batches": tuned}


def tables(folder: Path) -> Cases:
    """Columns of the paper's table of noise, and what the claims about it come to on these."""
    from reproduction.experiments import tau_table
    from tests.golden.frozen_names import project_rows

    def columns() -> dict[str, Any]:
        cells = [cell for cell in tau_table.cells(quick=True) if cell.level in (3, 11)]
        rows = [row for cell in cells for row in tau_table.run(cell)]
        return project_rows(rows, [claim.verdict for claim in tau_table.claims(rows)])

    return {"noise for a level of privacy": columns}


# -- all of it --------------------------------------------------------------------------------------------------------

KINDS: Final[dict[str, Callable[[Path], Cases]]] = {
    "accounts": accounts,
    "audits": audits,
    "recipes": recipes,
    "tables": tables,
}


@contextmanager
def _clock_stands_still() -> Iterator[None]:
    """What gmip leaves out because time is up depends on the machine: here it never is."""
    with patch.object(time, "monotonic", lambda: 1000.0):
        yield


def computed(kind: str, only: str = "") -> dict[str, dict[str, Any]]:
    """Case -> name -> value, of the cases whose names contain `only`; how long each takes goes to stderr."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="gmip-frozen-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, case in KINDS[kind](Path(folder)).items():
            if only not in name:
                continue
            start = time.process_time()
            with _clock_stands_still():
                named = case()
            # As a file has it: tuples are lists, keys are strings.
            found[name] = json.loads(json.dumps(named))
            print(f"{time.process_time() - start:6.2f} s  {len(named):5d} names  {kind}: {name}", file=sys.stderr)
    return found


def same(frozen: Any, now: Any) -> bool:
    """Equal, numbers up to the tolerance (and noise of rounding around zero)."""
    if isinstance(frozen, list) and isinstance(now, list):
        return len(frozen) == len(now) and all(map(same, frozen, now))
    if isinstance(frozen, float) and isinstance(now, float):
        return math.isclose(frozen, now, rel_tol=_TOLERANCE, abs_tol=_ROUNDING)
    return type(frozen) is type(now) and bool(frozen == now)


def differences(
    frozen: Mapping[str, Mapping[str, Any]], now: Mapping[str, Mapping[str, Any]]
) -> list[tuple[str, str, str, str]]:
    """(case, name, frozen value, value now) wherever they differ; "(nothing)" for what is not there."""
    found = []
    for case in sorted(frozen.keys() | now.keys()):
        old, new = frozen.get(case, {}), now.get(case, {})
        for name in sorted(old.keys() | new.keys()):
            if name not in old or name not in new or not same(old[name], new[name]):
                before, after = (json.dumps(part[name]) if name in part else "(nothing)" for part in (old, new))
                found.append((case, name, before, after))
    return found


def report(kind: str, found: Sequence[tuple[str, str, Any, Any]]) -> str:
    """The differences, a line each, under their cases."""
    lines = [f"{kind}: {len(found)} frozen values differ in {len({case for case, *_ in found})} cases"]
    last = None
    for case, name, before, after in found:
        if case != last:
            lines.append(f"  {case}")
            last = case
        lines.append(f"    {name}: {before} -> {after}")
    return "\n".join(lines)


def as_text(cases: Mapping[str, Mapping[str, Any]]) -> str:
    """JSON with a line for each name, so that a diff is read like the report. Floats are exact: repr has all bits."""
    parts = []
    for case, named in cases.items():
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in named.items())
        parts.append(f" {json.dumps(case)}: {{\n{lines}\n }}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def file_of(kind: str) -> Path:
    return FOLDER / f"{kind}.json"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.frozen_cases")
    parser.add_argument("kinds", nargs="*", help="of " + ", ".join(KINDS))
    parser.add_argument("--write", action="store_true", help="freeze what comes out")
    parser.add_argument("--only", default="", help="compare only cases whose name contains this")
    given = parser.parse_args(arguments)
    if unknown := set(given.kinds) - KINDS.keys():
        parser.error(f"{', '.join(sorted(unknown))}: not one of {', '.join(KINDS)}")
    if given.write and given.only:
        parser.error("--write freezes all cases of a kind: leave out --only")

    status = 0
    for kind in given.kinds or KINDS:
        now = computed(kind, given.only)
        if given.write:
            FOLDER.mkdir(exist_ok=True)
            file_of(kind).write_text(as_text(now), encoding="utf-8")
            continue
        frozen = json.loads(file_of(kind).read_text(encoding="utf-8"))
        found = differences({case: named for case, named in frozen.items() if given.only in case}, now)
        if found:
            print(report(kind, found))
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
