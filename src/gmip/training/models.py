"""Models: which ones can be trained and audited, how to fix the others, how well one does, through any wrapper.

`usable_device` says where tensors live: on the device that was asked for, or on the CPU, with a sentence.
`read_weights` reads files of weights: safetensors, torch's own (never unpickled), folders of Hugging Face.
"""

from __future__ import annotations

import copy
import json
import pickle
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.optim import Optimizer

from gmip._io import reading
from gmip.errors import FileError, InvalidArgument, UnsupportedModel, warn
from gmip.tasks.inputs import answer, placed, rows_per_pass
from gmip.tasks.task import Examples, Task

_EVALUATION_BATCH: Final = 4096

# What wrappers put before the name of a parameter: Opacus, torch.compile. "module." of DataParallel is not among them,
# because models of users have parts of that name too: see `unwrapped`.
_WRAPPERS: Final = ("_module.", "_orig_mod.")
# Optimizers that hold the one that takes the step as `optimizer`: accelerate's, Lightning's.
_AROUND: Final = {"AcceleratedOptimizer", "LightningOptimizer"}
_PARALLEL: Final = ("DataParallel", "DistributedDataParallel", "DifferentiallyPrivateDistributedDataParallel")


def plain_name(name: str) -> str:
    """A parameter's name without what Opacus and torch.compile put before it."""
    while prefix := next((w for w in _WRAPPERS if name.startswith(w)), None):
        name = name.removeprefix(prefix)
    return name


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside Opacus' wrapper, torch.compile's, DataParallel's, or several of them."""
    while True:
        names = ("module",) if type(model).__name__ in _PARALLEL else ("_module", "_orig_mod")
        inner = next((model._modules[name] for name in names if name in model._modules), None)
        if inner is None:
            return model
        model = inner


def bare_optimizer(optimizer: Optimizer) -> Optimizer:
    """The optimizer inside accelerate's wrapper, or Lightning's."""
    while _AROUND & {kind.__name__ for kind in type(optimizer).__mro__}:
        optimizer = optimizer.optimizer  # type: ignore[attr-defined]
    return optimizer


def dropouts(model: nn.Module) -> list[str]:
    """Names of the layers that drop something at random, as the model's mode is now."""
    return [
        name or type(module).__name__
        for name, module in unwrapped(model).named_modules()
        if module.training and (_drops(module) or any(_is_rate(key, value) for key, value in vars(module).items()))
    ]


def _drops(module: nn.Module) -> bool:
    return isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0.0


def _is_rate(key: str, value: object) -> bool:
    # Recurrent and attention layers, of torch and of transformers, hold a number.
    return "dropout" in key and isinstance(value, float) and value > 0.0


def trainable_parameters(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """(name, parameter) of all that training changes, names as the unwrapped model has them."""
    return ((name, p) for name, p in unwrapped(model).named_parameters() if p.requires_grad)


def count_params(model: nn.Module) -> int:
    """d, the number of trainable parameters."""
    return sum(p.numel() for _, p in trainable_parameters(model))


def check_model(model: nn.Module, *, per_example: bool = False) -> None:
    """Raises UnsupportedModel if a layer mixes the examples of a batch: then no record has a gradient of its own.

    Layers in eval mode (a frozen BatchNorm with statistics of its own) do not mix. With `per_example`, also what Opacus
    cannot clip is refused. The model is not changed, its mode included.
    """
    for name, module in unwrapped(model).named_modules():
        if _mixes(module):
            remedy = (
                "replace it (`fix_model`, which puts GroupNorm in its place as Opacus' ModuleValidator does), or "
                "freeze it in eval mode, with running statistics"
            )
            if getattr(module, "scale_grad_by_freq", False):
                remedy = "set scale_grad_by_freq=False"
            raise UnsupportedModel(
                f"Layer {name or 'model'} ({type(module).__name__}) mixes the examples of a batch, so no record has a "
                "gradient of its own",
                remedy=remedy,
            )
    if per_example:
        _check_clippable(unwrapped(model))


def fix_model(model: nn.Module) -> nn.Module:
    """A copy of the model with what mixes examples, or what Opacus cannot clip, replaced as Opacus' ModuleValidator
    does: BatchNorm becomes GroupNorm, LSTM becomes DPLSTM. Layers that are frozen in eval mode stay.

    New layers have new parameters: fix the model before making its optimizer.
    """
    from opacus.validators import ModuleValidator

    # Not ModuleValidator.fix: it copies by pickle, and passes over layers without trainable parameters.
    fixed = copy.deepcopy(model)
    for name, module in list(fixed.named_modules()):
        if type(module) in ModuleValidator.FIXERS and (_mixes(module) or _is_trainable(module)):
            if isinstance(module, nn.modules.instancenorm._InstanceNorm):
                new: nn.Module = _without_statistics(module)
            else:
                new = ModuleValidator.FIXERS[type(module)](module)
            like = next((p for p in (*module.parameters(), *module.buffers()) if p.is_floating_point()), None)
            new = new.train(module.training) if like is None else new.train(module.training).to(like)
            if not name:
                fixed = new
                break
            parent, _, child = name.rpartition(".")
            setattr(fixed.get_submodule(parent), child, new)
    check_model(fixed)
    return fixed


def load_state(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """`load_state_dict` for names as the unwrapped model has them."""
    wrapped = {plain_name(name): name for name in model.state_dict()}
    model.load_state_dict({wrapped[name]: value for name, value in state.items()})


def has_classes(targets: Tensor) -> bool:
    """Whether the targets are class numbers, so that accuracy means something."""
    return targets.ndim == 1 and not targets.is_floating_point()


@contextmanager
def in_eval_mode(model: nn.Module) -> Iterator[None]:
    """The model in eval mode; afterwards each of its modules is in the mode in which it was."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@torch.no_grad()
def evaluate(task: Task, model: nn.Module, examples: Examples) -> tuple[float, float | None]:
    """(mean loss, accuracy) in eval mode; accuracy is None where targets are not classes."""
    device = next(model.parameters()).device
    losses, hits, classes = 0.0, 0, has_classes(examples.targets)
    size = rows_per_pass(examples.inputs, _EVALUATION_BATCH)
    with in_eval_mode(model):
        for first in range(0, len(examples), size):
            part = examples[first : first + size]
            targets = part.targets.to(device)
            outputs = answer(model, placed(part.inputs, device))
            losses += float(task.loss(outputs, targets).cpu().sum(dtype=torch.float64))  # which MPS does not have
            hits += int((outputs.argmax(-1) == targets).sum()) if classes else 0
    return losses / len(examples), hits / len(examples) if classes else None


def mixing_layer(model: nn.Module) -> str | None:
    """The first layer that mixes the examples of a batch, as the model's mode is now."""
    modules = unwrapped(model).named_modules()
    return next((name or type(module).__name__ for name, module in modules if _mixes(module)), None)


def freeze_norms(model: nn.Module) -> None:
    """Puts layers that would mix examples in train mode into eval mode."""
    for module in model.modules():
        if isinstance(module, _NORMS):
            module.eval()


def has_norms(model: nn.Module) -> bool:
    """Whether a layer mixes examples in train mode, or would."""
    return any(isinstance(module, _NORMS) for module in model.modules())


_NORMS: Final = (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)


def _mixes(module: nn.Module) -> bool:
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        # Without running statistics eval mode, too, takes those of the batch.
        return module.training or module.running_mean is None
    if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        return module.scale_grad_by_freq and module.weight.requires_grad  # by how often a row occurs in the batch
    # InstanceNorm normalises each example alone, but its running statistics are of the batch.
    return isinstance(module, nn.modules.instancenorm._InstanceNorm) and module.training and module.track_running_stats


def _is_trainable(module: nn.Module) -> bool:
    return any(p.requires_grad for p in module.parameters(recurse=False))


def _without_statistics(module: nn.modules.instancenorm._InstanceNorm) -> nn.Module:
    new = copy.deepcopy(module)
    new.track_running_stats = False
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        new._buffers[name] = None
    return new


def _check_clippable(model: nn.Module) -> None:
    from opacus.validators import ModuleValidator

    for name, module in model.named_modules():
        if not _is_trainable(module):
            continue
        layer = f"layer {name or 'model'} ({type(module).__name__})"
        if not module.training:
            raise UnsupportedModel(
                f"Opacus cannot clip {layer} in eval mode",
                remedy="call train() on it, or freeze it with requires_grad_(False)",
            )
        errors = ModuleValidator.VALIDATORS[type(module)](module) if type(module) in ModuleValidator.VALIDATORS else []
        if errors:
            reason = " ".join(str(errors[0]).split()).rstrip(".!")
            raise UnsupportedModel(f"Opacus cannot clip {layer} and says {reason!r}", remedy="replace it (`fix_model`)")
        if any(True for _ in module.buffers()):
            raise UnsupportedModel(
                f"Opacus cannot clip {layer}, which holds buffers beside trainable parameters",
                remedy="keep the buffers in a layer of their own, without parameters",
            )


# -- where tensors live -----------------------------------------------------------------------------------------------


def usable_device(device: str, *, float64: bool = False) -> str:
    """`device` itself if it can be used here, else "cpu", with a GmipWarning that says why.

    Parameters
    ----------
    device : "cpu", "cuda", "cuda:1", "mps" or another that torch knows; a name that is none raises InvalidArgument.
    float64 : whether the work needs double precision, which MPS does not have.
    """
    try:
        kind = torch.device(device).type
    except (RuntimeError, TypeError):
        raise InvalidArgument(
            "is not a device", argument="device", value=device, remedy="pass cpu, cuda (or cuda:1, ...) or mps"
        ) from None
    if kind == "cpu":
        return device
    reason = "it has no double precision, which this work needs" if float64 and kind == "mps" else _refusal(device)
    if reason is None:
        return device
    warn(f"device = {device!r} cannot be used ({reason}): the CPU is used.")
    return "cpu"


def _refusal(device: str) -> str | None:
    """Why a tensor cannot be made, moved and read there; None if it can."""
    try:
        torch.ones(1, device=device).add(1.0).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        return " ".join(str(error).split("\n")[0].split()).rstrip(".") or type(error).__name__
    return None


# -- weights of a released model --------------------------------------------------------------------------------------


_TORCH: Final = (".pt", ".pth", ".bin", ".ckpt")
_NESTED: Final = ("state_dict", "model_state_dict", "model")  # under which checkpoints keep the weights
_INDEX: Final = "model.safetensors.index.json"
_FOLDER: Final = ("model.safetensors", "pytorch_model.bin")
_DATA_PARALLEL: Final = "module."


def read_weights(path: Path) -> dict[str, Tensor]:
    """Name -> tensor, on the CPU. What is wrong is one sentence that names the file; nothing is unpickled but tensors.

    A folder is one of Hugging Face's `save_pretrained`: model.safetensors (or its parts), else pytorch_model.bin.
    """
    with reading(path):
        if path.is_dir():
            return _folder(path)
        if path.suffix.lower() == ".safetensors":
            try:
                return dict(load_file(path))
            except (SafetensorError, ValueError) as error:
                raise _damaged(path, error) from None
        if path.suffix.lower() in _TORCH:
            return _torch_file(path)
    raise InvalidArgument(
        f"{path} is not a known kind of weights",
        remedy=f"pass .safetensors, {', '.join(_TORCH)}, or a folder of save_pretrained; of a pickled model, load it "
        "yourself and save model.state_dict()",
    )


def _folder(path: Path) -> dict[str, Tensor]:
    index = path / _INDEX
    if index.is_file():
        try:
            parts = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise _damaged(index, error) from None
        found: dict[str, Tensor] = {}
        for part in parts:
            if not isinstance(part, str) or Path(part).name != part:
                raise _damaged(index, f"it names {part!r}")
            found |= read_weights(path / part)
        return found
    file = next((path / name for name in _FOLDER if (path / name).is_file()), None)
    if file is None:
        if (path / "adapter_model.safetensors").is_file():
            raise InvalidArgument(
                f"{path} holds an adapter alone", remedy="merge it into its model (merge_and_unload) and save that"
            )
        if others := sorted(one.name for one in path.iterdir() if _holds_weights(one)):
            raise InvalidArgument(
                f"{path} holds {', '.join(others[:3])}{', ...' if len(others) > 3 else ''}: neither one model under a "
                "known name nor two checkpoints with numbers in their names",
                remedy="pass one of them, or name them in the order of training, as in epoch_1.pt and epoch_2.pt",
            )
        raise InvalidArgument(f"{path} holds no weights", remedy=f"save {' or '.join(_FOLDER)} there")
    return read_weights(file)


def _holds_weights(path: Path) -> bool:
    """Whether it looks like weights: a file of a known kind, or a folder of save_pretrained."""
    if path.is_dir():
        return any((path / name).is_file() for name in (*_FOLDER, _INDEX))
    return path.suffix.lower() in (".safetensors", *_TORCH)


def _torch_file(path: Path) -> dict[str, Tensor]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            given: Any = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:  # what torch says advises to switch the protection off
        raise InvalidArgument(
            f"{path} holds more than tensors (a whole model, perhaps), which would have to be executed",
            remedy="save model.state_dict(), better with safetensors.torch.save_file",
        ) from None
    except OSError:
        raise
    except Exception as error:  # what torch raises for a damaged file has no common class
        if "TorchScript" in str(error):
            raise InvalidArgument(
                f"{path} is a TorchScript program, which would have to be executed",
                remedy="load it yourself (torch.jit.load) and save model.state_dict()",
            ) from None
        raise _damaged(path, error) from None
    for name in _NESTED:
        if isinstance(given, Mapping) and isinstance(given.get(name), Mapping):
            given = given[name]
            break
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise InvalidArgument(f"{path} holds no weights by name", remedy="save model.state_dict()")
    wrong = next((name for name, value in given.items() if not isinstance(value, Tensor)), None)
    if wrong is not None:
        raise InvalidArgument(f"{path} holds {wrong!r}, which is no tensor", remedy="save model.state_dict() alone")
    return {name: value.detach() for name, value in given.items()}


def _damaged(path: Path, error: object) -> FileError:
    return FileError(f"{path} cannot be read as weights ({_reason(error)})", remedy="save them again")


def _reason(error: object) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], path: Path) -> None:
    """Loads them into the model, names without what wrappers put before them. Weights that the file leaves out must be
    ones that the model shares between layers, as Hugging Face's files do."""
    own = model.state_dict()
    given = {plain_name(name): value for name, value in weights.items()}
    if given and not set(given) & set(own) and all(name.startswith(_DATA_PARALLEL) for name in given):
        given = {name.removeprefix(_DATA_PARALLEL): value for name, value in given.items()}
    said = f"{path} is of another model than the task makes"
    remedy = "return the released model's own architecture in make_model"
    unknown = next((name for name in given if name not in own), None)
    if unknown is not None:
        raise InvalidArgument(f"{said}: it has {unknown[:80]!r}, the model has {_some(own)}", remedy=remedy)
    for name, value in given.items():
        if value.shape != own[name].shape:
            raise InvalidArgument(
                f"{said}: {name!r} has shape {tuple(value.shape)}, and {tuple(own[name].shape)} in the model",
                remedy=remedy,
            )
        if value.is_complex() and not own[name].is_complex():
            raise InvalidArgument(
                f"{path} has complex numbers in {name!r}, and the model has real ones",
                remedy="save the weights that the model was trained to",
            )
    filled = {own[name].data_ptr() for name in given if own[name].numel()}
    missing = next((n for n, t in own.items() if n not in given and t.numel() and t.data_ptr() not in filled), None)
    if missing is not None:
        raise InvalidArgument(f"{said}: it lacks {missing!r}", remedy=remedy)
    model.load_state_dict(given, strict=False)


def _some(names: Mapping[str, object]) -> str:
    listed = list(names)
    return ", ".join(listed[:4]) + (", ..." if len(listed) > 4 else "") or "none"
