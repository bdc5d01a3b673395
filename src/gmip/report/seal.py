"""Evidence that was fixed before training: a commitment to files, opened and checked afterwards by somebody else.

A seal is the SHA-256 of its opening: the names and hashes of files (task, recipe, code, the list or coins of members),
the version of gmip, and a random nonce, without which nobody can guess a short list of coins from the hash.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from pydantic import ValidationError

from gmip._io import make_folder, read, read_if_there, sha256, sha256_of_file, write
from gmip._tables import SUFFIXES, read_columns
from gmip.accounting.account import account
from gmip.auditing.schema import AttackOutcome, AuditResult, ClaimedCurve, Frozen, RunAudit
from gmip.auditing.verdict import claim_of, conclude, untried_gradients
from gmip.errors import InvalidArgument
from gmip.report.minisign import SecretKey, public_key, signature, signed
from gmip.report.write import RESULT, exposed_names
from gmip.stats.bounds import METHODS, mu_lower_bound
from gmip.stats.scores import RunScores, auc, pool

OPENING: Final = "seal-opening.json"
_SIGNATURE: Final = "seal.json.minisig"
_CLOSE: Final = 1.0e-6  # how far a recomputed number may be from the one in a result


class Seal(Frozen):
    """What can be published before training: it names no file and nobody."""

    format: Literal["gmip-seal"] = "gmip-seal"
    version: Literal[1] = 1
    created: str  # as the sealing machine says
    commitment: str


class SealOpening(Frozen):
    """What the seal commits to; kept secret until the audit."""

    format: Literal["gmip-seal-opening"] = "gmip-seal-opening"
    version: Literal[1] = 1
    gmip: str
    nonce: str
    files: dict[str, str]  # name -> SHA-256

    @property
    def commitment(self) -> str:
        return sha256(json.dumps(self.model_dump(), sort_keys=True))


class Verification(Frozen):
    """One thing that was verified, or could not be.

    check : "time" (the seal is no younger than the result, and than the record of a run where that is at hand, as their
        writers say; named only where that is not so, or cannot be told), "signature" (the seal is by the holder of a
        key), "opening" (it is what was sealed), "file" (as sealed), "members" (those of the result are the sealed
        ones), "verdict" (it follows from the numbers), "accounting" (the claim follows from the declared run), "scores"
        (the measured numbers follow from the scores).
    subject : the key, the file or the run that it is about.
    """

    check: Literal["time", "signature", "opening", "file", "members", "verdict", "accounting", "scores"]
    status: Literal["passed", "failed", "unchecked"]
    subject: str = ""


def make_seal(files: Sequence[str | Path], folder: str | Path, key: SecretKey | None = None) -> tuple[Path, Path]:
    """Writes seal.json, to be published, and seal-opening.json, to be kept secret, and returns where they are.

    With a key it writes seal.json.minisig beside them, which is for publication, too.

    Guarantees
    ----------
    Binding: to find other files with the same commitment is to find a collision of SHA-256. Hiding: the nonce has 256
    random bits. Both say nothing about when the seal was made, unless it was published.
    """
    names = [Path(file).name for file in files]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InvalidArgument("are two files of one name", argument="files", value=twice, remedy="rename one of them")
    hashes = {Path(file).name: sha256_of_file(Path(file)) for file in files}
    opening = SealOpening(gmip=version("gmip"), nonce=secrets.token_hex(32), files=hashes)
    seal = Seal(created=datetime.now(UTC).isoformat(timespec="seconds"), commitment=opening.commitment)
    target = Path(folder)
    public, secret, by = (target / name for name in ("seal.json", OPENING, _SIGNATURE))
    if taken := next((path for path in (public, secret, by) if path.exists()), None):
        raise InvalidArgument(f"{taken} is there already", remedy="keep it, and name another folder for a new seal")
    make_folder(target)
    content = seal.model_dump_json(indent=1) + "\n"
    write(public, content)
    write(secret, opening.model_dump_json(indent=1) + "\n")
    if key is not None:
        write(by, signature(content.encode(), key, public.name))
    return public, secret


def read_seal(path: Path) -> tuple[Seal, SealOpening]:
    """The seal in a file, and the opening beside it."""
    found = []
    for file, kind in ((path, Seal), (path.parent / OPENING, SealOpening)):
        try:
            found.append(kind.model_validate_json(read(file)))
        except ValidationError:
            raise InvalidArgument(f"{file} is no {kind.__name__}", remedy="pass what gmip seal wrote") from None
    return found[0], found[1]  # type: ignore[return-value]


def signer(path: Path, key: str | None) -> list[Verification]:
    """Whether the seal in a file is signed by a public key; nothing where there is neither key nor signature."""
    by = read_if_there(path.with_name(f"{path.name}.minisig"))
    if key is None:
        return [] if by is None else [Verification(check="signature", status="unchecked")]
    public = public_key(key)
    sound = by is not None and signed(read(path), by.decode("utf-8", "replace"), public)
    return [Verification(check="signature", status="passed" if sound else "failed", subject=public)]


def verified(result: AuditResult, folder: Path, seal: Seal, opening: SealOpening, files: Path) -> list[Verification]:
    """What can be recomputed, offline, by somebody who trusts neither the seal nor the result.

    Parameters
    ----------
    folder : of the report, with exposed-<run>.csv where it was passed on.
    files : the folder of the sealed files.
    """
    found = [Verification(check="opening", status="passed" if opening.commitment == seal.commitment else "failed")]
    sealed: dict[str, bool] = {}
    for name, expected in opening.files.items():
        path = files / Path(name).name
        if not path.is_file():
            found.append(Verification(check="file", status="unchecked", subject=name))
        elif sha256_of_file(path) != expected:
            found.append(Verification(check="file", status="failed", subject=name))
        else:
            found.append(Verification(check="file", status="passed", subject=name))
            sealed |= _membership(path) or {}
    found += _times(result, folder, seal, opening)
    names = exposed_names(result)
    for run in result.runs:
        found.append(Verification(check="verdict", status="passed" if _concluded(run) else "failed", subject=run.name))
        found += _accounting(run)
        table = folder / names[run.name]
        found += _scores(run, result, read_columns(table) if table.is_file() else None, sealed)
    return found


def _times(result: AuditResult, folder: Path, seal: Seal, opening: SealOpening) -> Iterator[Verification]:
    """Whether the seal was made after what it should have fixed, by the times that they name themselves."""
    sealed, written = _moment(seal.created), folder / RESULT if folder.is_dir() else folder
    of_result = written.is_file() and sha256_of_file(written) in opening.files.values()  # it is for what an audit wrote
    begun = {} if of_result else {f"the training of {run.name}": _began(run) for run in result.runs}
    for what, created in ({"the result": result.created} | begun).items():
        when = None if created is None else _moment(created)
        if sealed is None or (when is None and created is not None):
            yield Verification(check="time", status="unchecked", subject=what)
        elif when is not None and sealed > when:
            yield Verification(check="time", status="unchecked" if of_result else "failed", subject=what)


def _began(run: RunAudit) -> str | None:
    """When the training of a recorded run began, as its record says; None: that is not at hand."""
    if run.path is None or run.source != "recorded":
        return None
    try:
        created = json.loads((Path(run.path) / "trace.json").read_bytes())["created"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return created if isinstance(created, str) else None


def _moment(created: str) -> datetime | None:
    try:
        when = datetime.fromisoformat(created)
    except ValueError:
        return None
    return when if when.tzinfo is not None else when.replace(tzinfo=UTC)


def _membership(path: Path) -> dict[str, bool] | None:
    """Id -> whether it is a member, of a table that says so."""
    if path.suffix.lower() not in SUFFIXES:
        return None
    columns = read_columns(path)
    inside = next((columns[name] for name in ("member", "inside") if name in columns), None)
    if inside is None:
        return None
    ids = columns.get("id", range(len(inside)))
    return {str(one): _truth(value) for one, value in zip(ids, inside, strict=True)}


def _truth(value: Any) -> bool:
    return str(value).strip().lower() in ("1", "1.0", "true", "yes", "member", "in")


def _concluded(run: RunAudit) -> bool:
    """Whether the verdict follows from the answers, and what they call guaranteed from a bound that keeps the goal."""
    sound = run.check is None or run.check.passed
    doubted = run.suspicion is not None and run.suspicion.blinding
    missed = any((one.tpr_lower or 0.0) > run.goal.tpr for one in run.attacks)
    if missed and run.conclusion.kind != "fails":
        return False
    follows = conclude(
        run.answers,
        goal=run.goal,
        sound_record=sound,
        doubted=doubted,
        measurable=any(one.measurable(run.goal.fpr) for one in run.attacks),
        untried=untried_gradients(run.left_out),
    )
    if follows != run.conclusion:
        return False
    bounds = [claim_of(run, one) for one in run.answers if one.target == "guaranteed"]
    return all(one is not None and one.is_bound and one.tpr(run.goal.fpr) <= run.goal.tpr for one in bounds)


def _accounting(run: RunAudit) -> Iterator[Verification]:
    """Whether the accountant says of the declared run what the result says."""
    own = [one for one in run.claims if one.origin == "accountant" and one.key in ("claimed", "list", "gdp")]
    if not run.declared or not own:
        yield Verification(check="accounting", status="unchecked", subject=run.name)
        return
    same = all(_follows(run, claim) for claim in own)
    yield Verification(check="accounting", status="passed" if same else "failed", subject=run.name)


def _follows(run: RunAudit, claim: ClaimedCurve) -> bool:
    more: dict[str, Any] = {"notion": "gdp"} if claim.key == "gdp" else {"attacker_knows": claim.knows or 0.0}
    curve = account(list(run.declared), **more)
    same = all(abs(float(curve.tpr_at(float(fpr))) - tpr) <= _CLOSE for fpr, tpr in claim.tpr_at.items())
    return same and curve.kind == claim.kind


def _scores(
    run: RunAudit, result: AuditResult, table: Mapping[str, Any] | None, sealed: Mapping[str, bool]
) -> Iterator[Verification]:
    """Whether the members are the sealed ones, and the attack's numbers those of its scores."""
    outcome = next((one for one in run.attacks if one.attack == run.exposed_by), None)
    if table is None or outcome is None or outcome.repeats > 1:
        yield Verification(check="scores", status="unchecked", subject=run.name)
        yield Verification(check="members", status="unchecked", subject=run.name)
        return
    inside = np.array([_truth(one) for one in table["member"]])
    scores = np.asarray(table["score"], dtype=np.float64)
    same = _same_numbers(scores, inside, outcome, result, len(run.attacks))
    yield Verification(check="scores", status="passed" if same else "failed", subject=run.name)
    if not sealed:
        yield Verification(check="members", status="unchecked", subject=run.name)
    else:
        asked = zip(map(str, table["id"]), inside.tolist(), strict=True)
        kept = all(sealed.get(one.removeprefix("'")) == member for one, member in asked)
        yield Verification(check="members", status="passed" if kept else "failed", subject=run.name)


def _same_numbers(scores: Any, inside: Any, outcome: AttackOutcome, result: AuditResult, tests: int) -> bool:
    members, others = scores[inside], scores[~inside]
    if (members.size, others.size) != (outcome.members, outcome.non_members):
        return False
    if abs(auc(members, others) - outcome.auc.value) > _CLOSE:
        return False
    if np.unique(scores).size < scores.size:  # ties are broken by chance, and in another order here
        return True
    shared = 1.0 - (1.0 - result.confidence) / tests
    pooled = pool(RunScores(members, others))
    found = mu_lower_bound(pooled, confidence=shared, method=METHODS[0], seed=result.provenance.seed)
    return abs(found - outcome.mu_lower) <= _CLOSE


# -- in words ---------------------------------------------------------------------------------------------------------

_WORDS: Final = {
    (
        "time",
        "failed",
    ): "By the times in the files, the seal was made after {0}: it fixed nothing before.",
    ("time", "unchecked"): "Nothing here shows that the seal was made before {0}.",
    ("signature", "passed"): "The seal is signed by {0}.",
    ("signature", "failed"): "The seal is not signed by {0}.",
    ("signature", "unchecked"): "The seal is signed: pass --key to check by whom.",
    ("opening", "passed"): "The opening is what was sealed.",
    ("opening", "failed"): "The opening is not what was sealed.",
    ("file", "passed"): "{0} is as it was sealed.",
    ("file", "failed"): "{0} is not as it was sealed.",
    ("file", "unchecked"): "{0} was sealed, but is missing.",
    ("members", "passed"): "{0}: members and non-members are the sealed ones.",
    ("members", "failed"): "{0}: members and non-members are not the sealed ones.",
    ("members", "unchecked"): "{0}: who was a member cannot be compared; seal a table with id and member, and pass on "
    "exposed-<run>.csv.",
    ("verdict", "passed"): "{0}: the verdict follows from the numbers in the result.",
    ("verdict", "failed"): "{0}: the verdict does not follow from the numbers in the result.",
    ("accounting", "passed"): "{0}: the accountant says the same of the declared run.",
    ("accounting", "failed"): "{0}: the accountant says something else of the declared run.",
    ("accounting", "unchecked"): "{0}: there is no account to repeat.",
    ("scores", "passed"): "{0}: the measured numbers follow from the scores.",
    ("scores", "failed"): "{0}: the measured numbers do not follow from the scores.",
    ("scores", "unchecked"): "{0}: the scores of single candidates are not there.",
}
_MARKS: Final = {"passed": "ok ", "failed": "NO ", "unchecked": "?  "}


def seal_sentences(found: Sequence[Verification], created: str) -> list[str]:
    """The answer, a line for each thing that was looked at, and what all of it does not show."""
    failed = {one.check for one in found if one.status == "failed"}
    unchecked = any(one.status == "unchecked" for one in found)
    answer = (
        "Refused: by its own time the seal is too young to show anything."
        if failed == {"time"}
        else "Refused: the result contradicts the seal or itself."
        if failed
        else "Nothing contradicts the seal, but not everything could be checked."
        if unchecked
        else "The result follows from what was sealed."
    )
    return [
        answer,
        *(f"{_MARKS[one.status]}{_WORDS[one.check, one.status].format(one.subject)}" for one in found),
        f"The seal says that it was made at {created}: only its publication before the training proves that.",
        "Not shown: that the declared run is what ran (gmip check looks at that), and that the scores came from the "
        "model. Whoever trains and audits alone can make up both.",
    ]
