"""The file in which `gmip tune` hands a recipe to `gmip train`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from gmip import _validate as check
from gmip._io import read_yaml
from gmip.errors import InvalidArgument
from gmip.tuning.search_space import calibrated, exposure
from gmip.vocabulary import PrivacyTarget, Recipe

_KEYS = ("task", "split_seed", "target", "recipe")


@dataclass(frozen=True)
class RecipeFile:
    """task : a name or path/to/file.py:make_task; split_seed : of its members; target : what its noise keeps.
    The last two are None if the file does not say."""

    task: str
    split_seed: int | None
    recipe: Recipe
    target: PrivacyTarget | None = None

    def kept(self, num_params: int) -> Recipe:
        """The recipe, with more noise where its own does not keep the target: the file may have been edited."""
        if self.target is None or exposure(self.recipe, num_params, self.target) <= self.target.value:
            return self.recipe
        return calibrated(self.recipe, num_params, self.target)


def read_recipe_file(path: str | Path) -> RecipeFile:
    """A recipe with its task, members and target.

    Raises
    ------
    InvalidArgument : the file is not there, not YAML, or not such a recipe.
    """
    given = read_yaml(path)
    for name in given:
        if name not in _KEYS:
            raise _refused(path, f"has {name!r}, which is not known{check.did_you_mean(name, _KEYS)}")
    settings: Any = given.get("recipe")
    if not isinstance(settings, Mapping):
        raise _refused(path, "has no 'recipe' with settings under it")
    known = [field.name for field in fields(Recipe)]
    for name in settings:
        if name not in known:
            raise _refused(path, f"has {name!r} in its recipe, which is not known{check.did_you_mean(name, known)}")
    task = given.get("task")
    if not isinstance(task, str):
        raise _refused(path, "names no 'task'")
    try:
        recipe = Recipe(**settings)
        seed = given.get("split_seed")
        target = given.get("target")
        kept = None if target is None else PrivacyTarget.from_json(target)
        return RecipeFile(task, None if seed is None else check.seed(seed), recipe, kept)
    except InvalidArgument as error:
        raise _refused(path, f"cannot be used: {str(error).rstrip('.')}") from None
    except TypeError as error:  # a setting is missing
        raise _refused(path, f"cannot be used ({str(error).replace('.__init__()', '')})") from None


def _refused(path: str | Path, problem: str) -> InvalidArgument:
    return InvalidArgument(f"{path} {problem}", remedy="take a recipe that gmip tune wrote")
