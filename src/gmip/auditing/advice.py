"""What to do about a run: the least noise, or the batch, for a target; what weakens the audit itself."""

from __future__ import annotations

from collections.abc import Sequence

from gmip.accounting.account import account
from gmip.accounting.calibrate import calibrate
from gmip.accounting.mechanism import NoisySGD
from gmip.auditing.schema import Advice, AttackOutcome, Verdict
from gmip.errors import UnreachableTarget

__all__ = ["advise"]


def advise(
    run: NoisySGD, verdict: Verdict, attacks: Sequence[AttackOutcome], *, tpr: float, fpr: float, schedule: bool
) -> tuple[Advice, ...]:
    """Sentences in the order of what matters. `schedule`: the run has several phases, of which `run` is the largest."""
    said: list[Advice] = []
    if verdict.kind == "exposed":
        said.append(
            Advice(
                text="Do not rely on the promise: something in the training does not do what the accountant was told. "
                "Check that noise is drawn for every entry on its own, that each gradient is clipped before averaging, "
                "that batch and data sizes are right, and that the seed is secret. Then train and audit again."
            )
        )
    if any(one.attack == "seed" and one.auc.value > 0.5 for one in attacks):
        said.append(
            Advice(
                text="The seed was guessed and gives away who was in: train without --seed, which draws a secret one."
            )
        )
    said += _towards(run, tpr, fpr, schedule)
    if verdict.kind == "inconclusive" and verdict.candidates_needed is not None:
        said.append(
            Advice(
                text=f"Audit more candidates: about {verdict.candidates_needed} in all, half of them members. Repeated "
                "runs count together.",
                command="gmip audit ... --repeats 5",
            )
        )
    return tuple(said)


def _towards(run: NoisySGD, tpr: float, fpr: float, schedule: bool) -> list[Advice]:
    goal = f"at most {100 * tpr:g}% of the members at {100 * fpr:g}% false alarms"
    most = account(run).tpr_at(fpr)
    if most <= tpr and not schedule:
        return [Advice(text=f"The accountant already allows {goal}: no more noise is needed for that.")]
    said = []
    sizes = (
        f"--dataset-size {run.dataset_size} --batch-size {run.batch_size} --steps {run.num_steps} "
        f"--params {run.num_params} --sampling {run.sampling} --target-tpr {tpr:g}@{fpr:g}"
    )
    if run.clip_norm is not None:
        try:
            least = calibrate(run, target_tpr=(tpr, fpr))
            said.append(
                Advice(
                    text=f"For {goal}: train with noise_std = {least.noise_std:.4g} on the mean gradient, clipped at "
                    f"{run.clip_norm:g} (a noise multiplier of {least.noise_multiplier:.3g}); it is "
                    f"{run.noise_std:.4g} now.",
                    command=f"gmip calibrate {sizes} --clip {run.clip_norm:g}",
                )
            )
        except UnreachableTarget as why:
            said.append(Advice(text=f"No noise gives {goal}: {why}"))
    else:
        said.append(
            Advice(text=f"Clip gradients, so that noise can protect: without a clip norm no noise gives {goal}.")
        )
    if run.sampling == "full":
        return said  # the batch is all there is
    try:
        batch = calibrate(run, target_tpr=(tpr, fpr), solve_for="batch_size")
    except UnreachableTarget:
        return said  # the batch is one way of several, and this one is closed
    text = f"Or, at the present noise: batches of {batch.batch_size} instead of {run.batch_size}, in as many steps."
    return [*said, Advice(text=text)]
