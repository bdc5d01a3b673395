"""What must be true of a model before its examples can be told apart, and helpers that see through wrappers."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from gmip.errors import UnsupportedModel

__all__ = ["check_model", "count_params", "fix_model", "plain_name", "trainable_parameters"]

# What wrappers put before the name of a parameter: Opacus, torch.compile, DataParallel.
_WRAPPERS = ("_module.", "_orig_mod.", "module.")


def plain_name(name: str) -> str:
    """A parameter's name as the unwrapped model has it."""
    while prefix := next((w for w in _WRAPPERS if name.startswith(w)), None):
        name = name.removeprefix(prefix)
    return name


def trainable_parameters(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """(name, parameter) of all that training changes, names as the unwrapped model has them."""
    return ((plain_name(name), p) for name, p in model.named_parameters() if p.requires_grad)


def count_params(model: nn.Module) -> int:
    """d, the number of trainable parameters."""
    return sum(p.numel() for _, p in trainable_parameters(model))


def check_model(model: nn.Module, *, per_example: bool = False) -> None:
    """Raises UnsupportedModel if a layer mixes the examples of a batch: then no record has a gradient of its own.

    Layers in eval mode (a frozen BatchNorm) do not mix. With `per_example`, also what Opacus cannot clip is refused.
    """
    for name, module in model.named_modules():
        if module.training and _mixes(module):
            raise UnsupportedModel(
                f"Layer {plain_name(name) or 'model'} ({type(module).__name__}) mixes the examples of a batch, so no "
                "record has a gradient of its own: replace it (--fix-model, or gmip.training.fix_model, which puts "
                "GroupNorm in its place as Opacus' ModuleValidator does), or freeze it in eval mode."
            )
    if per_example:
        from opacus.validators import ModuleValidator

        errors = ModuleValidator.validate(model.train(), strict=False)
        if errors:
            reason = " ".join(str(errors[0]).split()).rstrip(".")
            raise UnsupportedModel(
                f"Opacus cannot clip this model: {reason}; replace the layer (--fix-model, or gmip.training.fix_model)."
            )


def fix_model(model: nn.Module) -> nn.Module:
    """The same model with layers that mix examples replaced (Opacus' ModuleValidator: BatchNorm becomes GroupNorm).

    New layers have new parameters: fix the model before making its optimizer.
    """
    from opacus.validators import ModuleValidator

    fixed: nn.Module = ModuleValidator.fix(model)
    check_model(fixed)
    return fixed


def _mixes(module: nn.Module) -> bool:
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return True
    # InstanceNorm normalises each example alone, but its running statistics are of the batch.
    return isinstance(module, nn.modules.instancenorm._InstanceNorm) and module.track_running_stats
