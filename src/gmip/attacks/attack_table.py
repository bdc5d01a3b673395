"""The attacks by name: what each is called and needs, on models and on arrays, and the paper's table of assumptions.

`import gmip` reads the table, so it imports nothing; the classes of attacks are imported when they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from gmip.attacks.attack import Attack, RunTraits

Need = Literal[
    "query",
    "tokens",
    "base",
    "weights",
    "checkpoints",
    "gradients",
    "recourse",
    "loss",
    "population",
    "labels",
    "shadows",
    "code",
    "list",
]
NEEDS: Final[dict[Need, str]] = {  # the rows of the paper's table of assumptions, in its order, and some more
    "query": "query access to the model",
    "tokens": "probabilities of single tokens (language models)",
    "base": "the model that training began with",
    "weights": "the weights of the released model",
    "checkpoints": "the weights at two or more moments of the training",
    "gradients": "the gradients that training published",
    "recourse": "counterfactual explanations (recourse)",
    "loss": "the loss function",
    "population": "records of the same distribution",
    "labels": "true labels of the candidates",
    "shadows": "shadow models",
    "code": "the training code and the whole pool",
    "list": "a list that contains the members",
}
Attacker = Literal["gradients", "weights", "predictions"]  # what an attacker sees, the most first

_OF_A_MODEL: Final[frozenset[Need]] = frozenset({"query", "weights", "loss", "population", "labels"})
_ANALYTICAL: Final = "error rates known in closed form"

NOTE: Final = (
    "glir computes gradients of the candidates itself, for which it takes the loss and the labels; the paper hands "
    "them to the attacker, and gmip.attacks.glir.glir_scores on such arrays needs neither."
)


class Row(NamedTuple):
    """An attack.

    Attributes
    ----------
    title : what it is called in tables, with its source.
    needs : what its attacker must have.
    home : module and class of the attack on models; None: there is none.
    array_needs : what its attacker must have where arrays of predictions are attacked; None: it does not attack these.
    variant : it needs what its original needs, and doubts the noise or the clipping; the paper's table leaves it out.
    """

    title: str
    needs: frozenset[Need]
    home: tuple[str, str] | None = None
    array_needs: frozenset[Need] | None = None
    variant: bool = False

    @property
    def on_arrays(self) -> bool:
        """Whether arrays of predictions are enough for it."""
        return self.array_needs is not None

    @property
    def compares(self) -> bool:
        """Whether it compares the attacked model with other models."""
        return bool(self.needs & {"shadows", "base"})


def _needs(*needs: Need) -> frozenset[Need]:
    return frozenset(needs)


_GLIR: Final = "gmip.attacks.glir.glir_attack"
_RELEASED: Final = "gmip.attacks.released_attacks"
_OF_STEPS: Final = _needs("gradients", "loss", "population", "labels")
_OF_WEIGHTS: Final = _needs("weights", "loss", "population", "labels")
_OF_SHADOWS: Final = _needs("query", "loss", "population", "labels", "shadows")
_OF_LABELS: Final = _needs("query", "labels")
_OF_REFERENCES: Final = _needs("query", "labels", "shadows")

# A line here makes an attack known to `gmip audit`, to `gmip attacks` and, by the name of its class, to
# `gmip.attacks`.
ATTACKS: Final[dict[str, Row]] = {
    "glir": Row("Gradient LRT (GLiR, Leemann et al. 2023)", _OF_STEPS, (_GLIR, "GLiR")),
    "decode": Row(
        "Decoding of a list of candidates",
        _needs("gradients", "loss", "labels", "list"),
        ("gmip.attacks.decode_attack", "Decode"),
    ),
    "loss": Row(
        "Loss (Yeom et al. 2018)", _needs("query", "loss", "labels"), ("gmip.attacks.loss", "Loss"), _OF_LABELS
    ),
    "lira": Row(
        "Loss LRT (LiRA, Carlini et al. 2022)",
        _OF_SHADOWS,
        ("gmip.attacks.shadow", "LiRA"),
        _OF_REFERENCES,
    ),
    "rmia": Row(
        "RMIA (Zarifzadeh et al. 2024)",
        _OF_SHADOWS,
        ("gmip.attacks.shadow", "RMIA"),
        _OF_REFERENCES,
    ),
    "min-k": Row("Min-K% (Shi et al. 2024)", _needs("query", "tokens", "labels"), ("gmip.attacks.loss", "MinK")),
    "reference": Row(
        "Ratio to the base model (Mireshghallah et al. 2022)",
        _needs("query", "base", "loss", "labels"),
        ("gmip.attacks.loss", "Reference"),
    ),
    "window": Row(
        "Windows against the base model (WBC, Chen et al. 2026)",
        _needs("query", "tokens", "base", "labels"),
        ("gmip.attacks.loss", "Window"),
    ),
    "cfd": Row("CFD (Pawelczyk et al. 2023)", _needs("recourse"), ("gmip.attacks.counterfactual", "CFD")),
    "cfd-lrt": Row(
        "CFD LRT (Pawelczyk et al. 2023)",
        _needs("recourse", "population", "shadows"),
        ("gmip.attacks.counterfactual", "CFDLRT"),
    ),
    "influence": Row("Inverse-Hessian attack (IHA, Suri et al. 2024)", _OF_WEIGHTS, (_RELEASED, "Influence")),
    "optimum": Row("GLiR on released weights at an optimum", _OF_WEIGHTS, (_RELEASED, "Optimum")),
    "optimum-decode": Row(
        "Decoding of released weights at an optimum",
        _needs("weights", "loss", "labels", "list"),
        (_RELEASED, "OptimumDecode"),
    ),
    "rehearsal": Row(
        "Decoding of checkpoints by rehearsal",
        _needs("weights", "checkpoints", "loss", "population", "labels", "list"),
        ("gmip.attacks.rehearsal_attack", "Rehearsal"),
    ),
    "rehearsal-steps": Row(
        "Decoding of steps and rounds by rehearsal",
        _needs("gradients", "loss", "population", "labels", "list"),
        ("gmip.attacks.rehearsal_attack", "RehearsalSteps"),
    ),
    "seed": Row("Guessed seed", _needs("gradients", "code"), ("gmip.attacks.seed", "Seed")),
    "glir-no-noise": Row("GLiR, assuming that no noise was added", _OF_STEPS, (_GLIR, "DoubtNoise"), variant=True),
    "glir-no-clip": Row(
        "GLiR, assuming that gradients were not clipped", _OF_STEPS, (_GLIR, "DoubtClipping"), variant=True
    ),
    "differences": Row(
        "GLiR on differences of steps, assuming that noise repeats",
        _OF_STEPS,
        ("gmip.attacks.glir.glir_attack", "Differences"),
        variant=True,
    ),
    "combined": Row("All scores with reference models, combined", _OF_REFERENCES, array_needs=_OF_REFERENCES),
    "base": Row("BASE (Lassila et al. 2025)", _OF_REFERENCES, array_needs=_OF_REFERENCES),
    "label-only": Row("Right answers (label-only, Choquette-Choo et al. 2021)", _OF_LABELS, array_needs=_OF_LABELS),
    "quantile": Row(
        "Quantile regression (Bertran et al. 2023)",
        _OF_LABELS | {"population"},
        array_needs=_OF_LABELS | {"population"},
    ),
    "margin": Row("Margin to the next class", _OF_LABELS, array_needs=_OF_LABELS),
    "entropy": Row("Modified entropy (Song and Mittal 2021)", _OF_LABELS, array_needs=_OF_LABELS),
    "confidence": Row("Confidence in any class (Salem et al. 2019)", _needs("query"), array_needs=_needs("query")),
}
# What "entropy" is where labels are not known.
PLAIN_ENTROPY: Final = Row("Entropy (Salem et al. 2019)", _needs("query"), array_needs=_needs("query"))

_HOMES: Final = {name: one.home for name, one in ATTACKS.items() if one.home is not None}


class Assumption(NamedTuple):
    """A row of the table: what is assumed, and of which attack (name -> whether)."""

    what: str
    attacks: dict[str, bool]


def names() -> tuple[str, ...]:
    """The attacks on models in the paper's table, as `make` takes them; `make` also knows the variants."""
    return tuple(name for name in _HOMES if not ATTACKS[name].variant)


def array_names() -> tuple[str, ...]:
    """The attacks on arrays of predictions."""
    return tuple(name for name, one in ATTACKS.items() if one.on_arrays)


def need_words(needs: Iterable[Need]) -> tuple[str, ...]:
    """What an attacker must have, in words and in the order of the table."""
    wanted = set(needs)
    return tuple(words for need, words in NEEDS.items() if need in wanted)


def seen(needs: Iterable[Need]) -> Attacker:
    """What of the training or of the model an attacker with these needs must see."""
    wanted = set(needs)
    if wanted & {"gradients", "code"}:
        return "gradients"
    return "weights" if "weights" in wanted else "predictions"


def default_names(runs: Sequence[RunTraits]) -> tuple[str, ...]:
    """The attacks that an audit of these runs uses when nobody names any.

    For a model without its training these are all that need nothing else: no gradients, no shadow models, no
    explanations.
    """
    if all(run.published for run in runs):
        return tuple(name for name in _HOMES if kind(name).runs_by_default(runs))
    named = [name for name in _HOMES if ATTACKS[name].needs <= _OF_A_MODEL]
    several = [name for name in _HOMES if "checkpoints" in ATTACKS[name].needs and kind(name).runs_by_default(runs)]
    return (*several, *named)


def kind(name: str) -> type[Attack]:
    """The class of an attack on models."""
    from gmip import _validate as check

    module, attribute = _HOMES[check.one_of("attack", name, tuple(_HOMES))]
    found: type[Attack] = getattr(import_module(module), attribute)
    return found


def make(name: str, **options: Any) -> Attack:
    """An attack by its name; options are the keywords of its class."""
    import inspect

    from gmip import _validate as check
    from gmip.errors import InvalidArgument

    made = kind(name)
    known = list(inspect.signature(made).parameters)
    for option in options:
        if option not in known:
            raise InvalidArgument(
                f"{option!r} is not an option of attack {name!r}{check.did_you_mean(option, known)}",
                remedy=f"pass some of {', '.join(known)}",
            )
    return made(**options)


def titles() -> dict[str, str]:
    """Name -> what an attack on models is called in tables, with its source."""
    return {name: ATTACKS[name].title for name in _HOMES}


def table() -> tuple[Assumption, ...]:
    """What each attack needs, in the order of the paper's table, and whether its error rates are known."""
    rows = [Assumption(what, {name: need in ATTACKS[name].needs for name in names()}) for need, what in NEEDS.items()]
    return (*rows, Assumption(_ANALYTICAL, {name: kind(name).analytical for name in names()}))
