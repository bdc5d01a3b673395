from __future__ import annotations

from typing import Any

from gmip import Gaussian, NoisySGD, account
from gmip.auditing.advice import advise
from gmip.auditing.advice_trials import ranked
from gmip.auditing.schema import Advice, AttackerAnswer, TriedAccuracy, Way
from gmip.auditing.verdict import verdict
from gmip.vocabulary import Rate
from tests.unit.auditing.scored import CONFIDENCE, measured

RUN = NoisySGD(dataset_size=600, batch_size=100, num_steps=20, num_params=170, clip_norm=1.0, noise_std=0.01)
GOAL = Rate(0.05, 0.01)


def advice(
    *runs: NoisySGD, kind: str = "consistent", answer: AttackerAnswer | None = None, **changes: Any
) -> tuple[Advice, ...]:
    one = measured(0.5, 200, 1.0, **changes)
    judged = verdict([one], Gaussian(1.0), fpr=0.01, confidence=CONFIDENCE).model_copy(update={"kind": kind})
    return advise(runs, judged, [one], goal=GOAL, answer=answer)


def test_changes_are_those_of_the_run() -> None:
    for one in advice(RUN):
        if one.way is not None:
            notion: Any = "gdp" if one.way.change == "noise-alone" else "gmip"
            assert account(RUN.replace(**one.way.changes([RUN])), notion=notion).tpr_at(0.01) == one.way.tpr


def answer(target: str, why: str, knows: float = 0.0) -> AttackerAnswer:
    return AttackerAnswer(sees="gradients", knows=knows, leak="leak", target=target, why=why)


def test_nothing_to_do_for_a_target_that_is_guaranteed() -> None:
    (only,) = advice(RUN, answer=answer("guaranteed", "bound"))
    assert only == Advice(kind="guaranteed-already")


def test_a_target_that_is_only_forecast_leads_with_the_noise_that_proves_it() -> None:
    run = RUN.replace(noise_std=0.0235)
    now, lead, first, *_ = advice(run, answer=answer("not-guaranteed", "forecast"))
    assert now.kind == "forecast-already" and now.tpr == account(run).tpr_at(0.01) < 0.05
    assert lead.kind == "to-guarantee" and now.for_whom == account(run).for_whom
    assert first.way is not None and first.way.change == "noise-alone" and first.way.kind == "bound"


def test_the_ways_are_about_the_attacker_of_the_headline() -> None:
    """What is enough against one without a list is not against one who holds it."""
    run = RUN.replace(noise_std=0.0235)
    lead, noise, *_ = advice(run, answer=answer("not-guaranteed", "exceeds", knows=1.0))
    assert noise.way is not None and noise.way.kind == "bound"
    assert account(RUN.replace(**noise.way.changes([run])), attacker_knows=1.0).tpr_at(0.01) <= 0.05
    assert lead.kind == "to-guarantee" and noise.way.runs[0].noise_std == 0.026839


def test_a_bound_that_the_record_does_not_prove_leads_to_a_better_record() -> None:
    run = RUN.replace(noise_std=0.03)
    (first, *_) = advice(run, answer=answer("not-guaranteed", "imprecise"))
    assert first.kind == "bound-already"


def test_advice_without_clipping() -> None:
    run = NoisySGD(dataset_size=2000, batch_size=200, num_steps=50, num_params=650)
    *_, clip, last = advice(run)
    assert clip.kind == "clip-first" and last.kind == "closed-ways"
    assert {one.change: one.why for one in last.closed}["noise"] == "no-clip-norm"


def test_advice_about_exposure_and_seeds() -> None:
    assert advice(RUN.replace(noise_std=1.0), kind="exposed")[0].kind == "claim-refuted"
    assert advice(RUN.replace(noise_std=1.0), guessed_seed=7)[0].kind == "seed-guessed"


def test_the_best_model_comes_first_and_what_was_not_measured_last() -> None:
    def way(name: str, accuracy: float | None) -> Advice:
        tried = None if accuracy is None else TriedAccuracy(mean=accuracy, error=0.01, seeds=3, trained_on=9)
        found = Way(change="noise", runs=(RUN,), tpr=0.05, kind="bound", for_whom=name, accuracy=tried)
        return Advice(kind="way", way=found)

    first, last = Advice(kind="seed-guessed"), Advice(kind="tune")
    given = [first, way("none", None), way("good", 0.8), way("bad", 0.2), way("best", 0.9), last]
    found = ranked(given)
    assert (found[0], found[-1]) == (first, last)
    assert [one.way.for_whom for one in found if one.way is not None] == ["best", "good", "bad", "none"]


def test_where_the_training_is_not_known_the_first_word_is_to_find_less() -> None:
    """Also where only an attacker with a list finds anybody, who stands last among the attacks."""
    nothing, listed = measured(0.0, 300, 1.0), measured(2.0, 300, 1.0, knows=1.0)
    judged = verdict([nothing, listed], None, fpr=0.01, confidence=CONFIDENCE)
    said = advise((), judged, [nothing, listed], goal=GOAL)
    assert [one.kind for one in said] == ["find-less", "say-claim"]
    assert [one.kind for one in advise((), judged, [nothing], goal=GOAL)] == ["say-claim"]
