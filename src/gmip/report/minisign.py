"""Signatures of files in the format of minisign: Ed25519 over the BLAKE2b hash of a file.

The files are those of https://jedisct1.github.io/minisign/ (2026-11), so that minisign checks what gmip signed, and
gmip what minisign signed. Secret keys with a password are left to minisign itself.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gmip._extras import needs
from gmip._io import read, read_if_there, write
from gmip.errors import InvalidArgument

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_KEY, _HASHED, _PLAIN, _CHECKED = b"Ed", b"ED", b"\0\0", b"B2"  # of a key, of a hash; no password, kind of check sum
_ID, _SEED, _PUBLIC, _SUM = 8, 32, 32, 32  # sizes in bytes
_KDF: Final = 32 + 8 + 8  # salt and limits; without a password they are unused, and the check sum is, too
_BODY: Final = 6 + _KDF
_TRUSTED: Final = "trusted comment: "
_OTHERS: Final = 0o077
_LONGEST: Final = 4096  # characters of a path


@dataclass(frozen=True)
class SecretKey:
    """A key that signs. `public` is what minisign prints: algorithm, id and public key in base64."""

    id: bytes
    seed: bytes = field(repr=False)

    @property
    def raw(self) -> bytes:
        return _private(self.seed).public_key().public_bytes_raw()

    @property
    def public(self) -> str:
        return _text(_KEY + self.id + self.raw)

    def file(self) -> str:
        """The file of the key, without a password."""
        whole = _KEY + _PLAIN + _CHECKED + bytes(_KDF) + self.id + self.seed + self.raw + bytes(_SUM)
        return f"untrusted comment: secret key of gmip, without a password\n{_text(whole)}\n"


def fresh_key(path: Path) -> SecretKey:
    """A new key, in a file that only its owner can read."""
    needs("a signature", "cryptography")
    key = SecretKey(secrets.token_bytes(_ID), secrets.token_bytes(_SEED))
    write(path, key.file())
    return key


def secret_key(path: Path) -> SecretKey:
    """The key in a file that nobody else may read; refused where it has a password."""
    needs("a signature", "cryptography")
    lines = read(path).decode("utf-8", "replace").splitlines()
    content = _bytes(lines[1]) if len(lines) > 1 else b""
    if content[:2] != _KEY or len(content) != _BODY + _ID + _SEED + _PUBLIC + _SUM:
        raise InvalidArgument(f"{path} is no secret key of minisign", argument="key", remedy="name another file")
    if content[2:4] != _PLAIN:
        remedy = "name one without, or seal without --key and sign seal.json with minisign -Sm"
        raise InvalidArgument(f"{path} has a password", argument="key", remedy=remedy)
    if os.name != "nt" and path.stat().st_mode & _OTHERS:
        raise InvalidArgument(f"others may read {path}", argument="key", remedy=f"chmod 600 {path}")
    key = SecretKey(content[_BODY : _BODY + _ID], content[_BODY + _ID : _BODY + _ID + _SEED])
    if key.raw != content[-_SUM - _PUBLIC : -_SUM]:
        raise InvalidArgument(f"{path} is damaged", argument="key", remedy="use a copy of it")
    return key


def signature(content: bytes, key: SecretKey, name: str) -> str:
    """The text of NAME.minisig for the content of a file.

    Guarantees
    ----------
    Nobody without the key can make a signature of other content that `signed` accepts, if Ed25519 and BLAKE2b hold.
    When it was made is what the signer's clock says.
    """
    private = _private(key.seed)
    made = private.sign(hashlib.blake2b(content).digest())
    comment = f"timestamp:{int(time.time())}\tfile:{name}\thashed"
    lines = [
        "untrusted comment: signature of gmip",
        _text(_HASHED + key.id + made),
        _TRUSTED + comment,
        _text(private.sign(made + comment.encode())),
    ]
    return "\n".join(lines) + "\n"


def public_key(text: str) -> str:
    """The public key in a text (`RW...`), or in the file that the text names."""
    found = read_if_there(Path(text)) if len(text) < _LONGEST else None
    line = text if found is None else (found.decode("utf-8", "replace").strip().splitlines() or [""])[-1]
    raw = _bytes(line.strip())
    if raw[:2] != _KEY or len(raw) != 2 + _ID + _PUBLIC:
        remedy = "pass what gmip seal --key printed (RW...)"
        raise InvalidArgument("is no public key of minisign", argument="key", value=text, remedy=remedy)
    return _text(raw)


def signed(content: bytes, text: str, public: str) -> bool:
    """Whether the text is a signature of the content, and its comment's, by the public key."""
    needs("a signature", "cryptography")
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    raw, lines = _bytes(public), text.splitlines()
    if len(lines) != 4 or not lines[2].startswith(_TRUSTED):
        return False
    first, whole = _bytes(lines[1]), _bytes(lines[3])
    kind, made = first[:2], first[2 + _ID :]
    if kind not in (_KEY, _HASHED) or first[2 : 2 + _ID] != raw[2 : 2 + _ID]:
        return False
    key = Ed25519PublicKey.from_public_bytes(raw[2 + _ID :])
    try:
        key.verify(made, hashlib.blake2b(content).digest() if kind == _HASHED else content)
        key.verify(whole, made + lines[2].removeprefix(_TRUSTED).encode())
    except InvalidSignature:
        return False
    return True


def _private(seed: bytes) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(seed)


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _bytes(text: str) -> bytes:
    """What base64 says, and nothing where it is none."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
