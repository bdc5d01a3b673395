"""What to do about a run: the least noise, or the batch, for a target; what weakens the audit itself."""

from __future__ import annotations

from collections.abc import Sequence

from gmip._numbers import count, number, rate, setting
from gmip.accounting.account import account
from gmip.accounting.calibrate import calibrate
from gmip.accounting.mechanism import NoisySGD
from gmip.auditing.schema import Advice, AttackOutcome, Verdict
from gmip.errors import UnreachableTarget
from gmip.stats.scores import GUESSED_SEED

__all__ = ["advise"]


def advise(
    run: NoisySGD | None, verdict: Verdict, attacks: Sequence[AttackOutcome], *, tpr: float, fpr: float, schedule: bool
) -> tuple[Advice, ...]:
    """Sentences in the order of what matters. `schedule`: the run has several phases, of which `run` is the largest.

    `run` None: how the model was trained is not known."""
    said: list[Advice] = []
    if verdict.kind == "exposed":
        said.append(
            Advice(
                text="Do not rely on the promise: the training differs from what the accountant was told. Check that "
                "the noise is independent in every entry, that each gradient is clipped before averaging, that "
                "the batch and data sizes are right, and that the seed is secret. Then train and audit again."
                if run is not None
                else "Do not rely on the promise. Check that members and non-members differ in nothing but their "
                "membership; if so, the training does not do what was promised: find out why, train and audit again."
            )
        )
    if any(GUESSED_SEED in one.facts for one in attacks):
        said.append(
            Advice(
                text="The seed can be guessed, and it reveals the members: train without --seed, so that a secret one "
                "is drawn."
            )
        )
    said += _unknown_training(verdict, attacks) if run is None else _towards(run, tpr, fpr, schedule)
    if verdict.kind == "inconclusive" and verdict.candidates_needed is not None:
        said.append(
            Advice(
                text=f"Audit more candidates: about {count(verdict.candidates_needed)} in all, half of them members. "
                "Repeated runs add up.",
                command=None if run is None else "gmip audit ... --repeats 5",
            )
        )
    return tuple(said)


def _unknown_training(verdict: Verdict, attacks: Sequence[AttackOutcome]) -> list[Advice]:
    said = []
    if verdict.kind == "measured":
        said.append(
            Advice(
                text="Say what was promised, and the audit tests it: a mu, or an epsilon and a delta.",
                command="gmip audit ... --claim-mu 1",
            )
        )
    if attacks[0].mu_lower > 0.0:
        said.append(
            Advice(
                text="To find less: train on more records, for fewer steps, or with clipping and noise (gmip train)."
            )
        )
    return said


def _towards(run: NoisySGD, tpr: float, fpr: float, schedule: bool) -> list[Advice]:
    goal = f"at most {rate(tpr)} of the members at {rate(fpr)} false alarms"
    most = account(run).tpr_at(fpr)
    if most <= tpr and not schedule:
        return [Advice(text=f"The run already promises {goal}: that needs no more noise.")]
    said = []
    sizes = (
        f"--dataset-size {run.dataset_size} --batch-size {run.batch_size} --steps {run.num_steps} "
        f"--params {run.num_params} --sampling {run.sampling} --target-tpr {tpr:g}@{fpr:g}"
    )
    if run.clip_norm is not None:
        try:
            least = calibrate(run, target_tpr=(tpr, fpr))
            multiplier = least.noise_multiplier
            assert multiplier is not None  # gradients are clipped
            said.append(
                Advice(
                    text=f"For {goal}: train with noise_std = {number(least.noise_std, 'up', 5)} on the mean gradient, "
                    f"clipped at {setting(run.clip_norm)} (noise multiplier "
                    f"{number(multiplier, 'up', 5)}); it is {setting(run.noise_std)} now.",
                    command=f"gmip calibrate {sizes} --clip {run.clip_norm:g}",
                )
            )
        except UnreachableTarget as why:
            said.append(Advice(text=f"No amount of noise gives {goal}: {why}"))
    else:
        said.append(
            Advice(
                text="Clip the gradient of each record and add noise: without a clip norm no amount of noise gives "
                f"{goal}. (clip_grad_norm_ clips the mean of a batch, which bounds nobody's part in it.)"
            )
        )
    if run.sampling == "full":
        return said  # the batch is all there is
    try:
        batch = calibrate(run, target_tpr=(tpr, fpr), solve_for="batch_size")
    except UnreachableTarget:
        return said  # the batch is one way of several, and this one is closed
    sizes = f"{count(batch.batch_size)} instead of {count(run.batch_size)}"
    text = f"Or keep the noise and use batches of {sizes}, for as many steps."
    return [*said, Advice(text=text)]
