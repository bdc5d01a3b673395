"""`gmip seal` and `gmip verify`: evidence that was fixed before training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from pydantic import Field

from gmip.cli.options import Option, Settings, from_settings


class SealSettings(Settings):
    """Settings of `gmip seal`."""

    files: Annotated[
        tuple[str, ...],
        Option("FILE", argument=True),
        Field(description="What is fixed now: task, recipe, code, and a table of who will be in (id, member)."),
    ]
    out: Annotated[str, Option("DIR"), Field(description="Folder for the seal.")] = "seal"
    key: Annotated[
        str | None, Option("FILE"), Field(description="Sign with this secret key of minisign, made if it is not there.")
    ] = None


@from_settings(SealSettings)
def seal(asked: SealSettings) -> None:
    """Before training: fix files by their checksums, without showing them.

    Example: gmip seal my_task.py audit.yaml members.csv --out seal

    Writes seal.json, to publish before training (a commit, a mail), and
    seal-opening.json, to keep secret until the audit.
    """
    from gmip.report.minisign import fresh_key, secret_key
    from gmip.report.seal import make_seal

    path = Path(asked.key) if asked.key else None
    new = path is not None and not path.exists()
    key = None if path is None else fresh_key(path) if new else secret_key(path)
    public, opening = make_seal(asked.files, asked.out, key)
    print(f"To publish before training: {public}")
    print(f"To keep secret until the audit: {opening}")
    if key is not None:
        print(f"Signed by {key.public} in {public}.minisig, to publish with it.")
        if new:
            print(f"The new key is in {path}, without a password: keep it secret, and publish RW... as yours.")


class VerifySettings(Settings):
    """Settings of `gmip verify`."""

    folder: Annotated[str, Option("DIR", argument=True), Field(description="Folder of the report of an audit.")]
    seal: Annotated[str, Option("FILE"), Field(description="The seal, with its opening beside it.")] = "seal/seal.json"
    files: Annotated[str, Option("DIR"), Field(description="Folder of the sealed files.")] = "."
    key: Annotated[
        str | None, Option("KEY"), Field(description="Public key (RW..., or its file) that must have signed the seal.")
    ] = None


@from_settings(VerifySettings)
def verify(asked: VerifySettings) -> None:
    """After the audit: check that the result follows from the sealed files.

    Example: gmip verify audit --seal seal/seal.json

    For somebody else to run, offline. Recomputes what it can, and says what
    that proves and what it does not. Exit code 1 if anything contradicts.
    """
    from gmip.report import read_result
    from gmip.report.seal import read_seal, seal_sentences, signer, verified

    found_seal, opening = read_seal(Path(asked.seal))
    found = signer(Path(asked.seal), asked.key)
    found += verified(read_result(asked.folder), Path(asked.folder), found_seal, opening, Path(asked.files))
    print("\n".join(seal_sentences(found, found_seal.created)))
    if any(one.status == "failed" for one in found):
        raise typer.Exit(1)
