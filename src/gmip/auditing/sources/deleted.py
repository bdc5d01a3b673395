"""Were these people deleted? What a new release still tells about those who asked to be."""

from __future__ import annotations

import dataclasses
from dataclasses import KW_ONLY, dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gmip import _validate as check
from gmip._progress import Watch, silent
from gmip.auditing.judge import AttackEvidence, Evidence
from gmip.auditing.schema import Deletion
from gmip.auditing.sources import Source
from gmip.errors import InvalidArgument
from gmip.stats import ScoreSet

_FOUND: Final = 0.05  # of p-values


@dataclass(frozen=True, eq=False)
class Deleted:
    """A release from which people were deleted: do traces of them remain?

        new = gmip.Predictions(asked, labels=y, probabilities=p_new, references=retrained)
        old = gmip.Predictions(asked, labels=y, probabilities=p_old, references=retrained)
        result = gmip.audit(gmip.Deleted(new, before=old))

    Parameters
    ----------
    after : the new release, as any source of one model, whose "members" are the people who asked to be deleted and
        whose "non-members" are controls: people of the same kind who were in neither release.
    before : the old release with the same people; None: not known. It shows whether there was anything to find.
    attack : which attack; None: the first of those that the source allows, whatever it finds. Reference models,
        retrained without all of these people, make for a stronger one.

    Guarantees
    ----------
    A trace is a score that is unusually high, or unusually low: a deletion that overdoes it is one, too. So the scores
    count as they are and turned round, as two attacks. A p-value is twice the smaller rank among the controls. If the
    new release was trained without these people, and who asked to be deleted was a matter of chance among people of
    that kind, it is at most p with a chance of at most p. What is not found may be there all the same: compare with
    `RunAudit.deletion.before`. Checkpoints are refused: where the way begins at the old release, which knew these
    people, a model that was retrained without them would be accused.
    """

    after: Source
    _: KW_ONLY
    before: Source | None = None
    attack: str | None = None

    def evidence(self, seed: int = 0, watch: Watch = silent) -> Evidence:
        """The evidence of the new release by one attack, as it is and turned round."""
        found, attack = self._of(self.after, "after", seed, watch)
        before = None
        if self.before is not None:
            _, old = self._of(self.before, "before", seed, watch)
            if set(old.members.tolist()) != set(attack.members.tolist()):
                raise InvalidArgument(
                    "is about other requests than `after`", argument="before", remedy="name the same people in both"
                )
            before = _share_found(old)
        turned = dataclasses.replace(attack, name=f"{attack.name}-turned", title=f"{attack.title}, turned round")
        return dataclasses.replace(
            found,
            name="deleted",
            source="deleted",
            attacks=(_either_way(attack, 1.0), _either_way(turned, -1.0)),
            deletion=Deletion(found=_share_found(attack), before=before),
        )

    def _of(self, source: Source, name: str, seed: int, watch: Watch) -> tuple[Evidence, AttackEvidence]:
        if not hasattr(source, "evidence"):
            raise InvalidArgument(
                f"must be a source, not {type(source).__name__}", argument=name, remedy="pass gmip.Predictions(...)"
            )
        if getattr(source, "several_models", False):
            raise InvalidArgument(
                "holds several models, and one that knew these people accuses those that forgot them",
                argument=name,
                remedy="pass one of them as gmip.Released(...): the new model as `after`, the old one as `before`",
            )
        found = source.evidence(seed, watch)
        known = {one.name: one for one in found.attacks}
        if not known:
            raise InvalidArgument("allows no attack", argument=name)
        return found, known[next(iter(known)) if self.attack is None else check.one_of("attack", self.attack, [*known])]


def _either_way(attack: AttackEvidence, sign: float) -> AttackEvidence:
    """The attack with scores of that sign, and with p-values."""
    found = [
        dataclasses.replace(
            one,
            scores=ScoreSet(
                ids=one.scores.ids,
                scores=sign * one.scores.scores,
                attack=attack.name,
                p_values=_p_values(one.scores.scores, labels.inside),
                facts=one.scores.facts,
            ),
        )
        for one, labels in zip(attack.found, attack.labels, strict=True)
    ]
    return dataclasses.replace(attack, found=tuple(found))


def _p_values(scores: NDArray[np.float64], requested: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Twice the smaller of (1 + how many other controls score as high or higher) / (1 + how many others there are) and
    the same for as low or lower, shape of scores."""
    controls = np.sort(scores[~requested])
    higher = len(controls) - np.searchsorted(controls, scores, side="left")
    lower = np.searchsorted(controls, scores, side="right")
    own = (~requested).astype(np.float64)  # a control is not its own control
    return np.asarray(np.minimum(1.0, 2.0 * (1.0 + np.minimum(higher, lower) - own) / (1.0 + len(controls) - own)))


def _share_found(attack: AttackEvidence) -> float:
    inside = attack.labels[0].inside
    return float((_p_values(attack.first.scores, inside)[inside] <= _FOUND).mean())
