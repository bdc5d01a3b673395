"""One sentence where a package of one of gmip's extras is not installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from gmip.errors import GmipError

# Package -> the extra that installs it; all others of the extras come with "train".
_EXTRAS: Final = {
    "accelerate": "accelerate",
    "cryptography": "sign",
    "distributed": "dask",
    "flwr": "flower",
    "fsspec": "s3",
    "lightning": "lightning",
    "matplotlib": "plot",
    "peft": "transformers",
    "ray": "ray",
    "s3fs": "s3",
    "starlette": "app",
    "transformers": "transformers",
    "uvicorn": "app",
}
_TRAIN: Final = frozenset(
    ["torch", "opacus", "safetensors", "xxhash", "sklearn", "pooch", "joblib", "cloudpickle", "threadpoolctl"]
)


class MissingExtra(GmipError, ModuleNotFoundError):
    """A package is not installed; the message names the extra."""


def missing(error: ModuleNotFoundError, what: str) -> ModuleNotFoundError:
    """The sentence for a failed import of `what`; the error itself where the package belongs to no extra."""
    package = (error.name or "").partition(".")[0]
    if package not in _TRAIN | _EXTRAS.keys():
        return error
    extra = _EXTRAS.get(package, "train")
    found = MissingExtra(f"{what} needs {package}, which is not installed", remedy=f"pip install 'gmip[{extra}]'")
    found.name = package
    return found


def needs(what: str, *packages: str) -> None:
    """Raises `MissingExtra` unless the packages that `what` imports are installed."""
    for package in packages:
        try:
            found = find_spec(package) is not None
        except (ModuleNotFoundError, ValueError):
            found = False
        if not found:
            raise missing(ModuleNotFoundError(name=package), what)
