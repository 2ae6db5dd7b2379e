"""Whether a model fits a plug-in: each check raises `ValueError` with what was found, and what is needed."""

from collections.abc import Container, Iterable, Iterator
from typing import cast

from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
"""Modules with the arguments `sparse`, which gives the weight a sparse gradient, and `max_norm`."""

NOTHING_TO_TRAIN = "the model has no weights to train: none has requires_grad; one that is trained is needed"
NOTHING_TO_CHANGE = (
    "inference() changes the weights that are trained, and none of the model's has requires_grad; call it before the weights"
    " are frozen"
)


def named_modules(model: nn.Module) -> dict[str, nn.Module]:
    """Return the model and the modules in it, by name."""
    return dict(cast("Iterable[tuple[str, nn.Module]]", model.named_modules()))


def check_trained(model: nn.Module, message: str = NOTHING_TO_TRAIN) -> None:
    """Raise `ValueError` with the `message` if the model has weights, and none of them is trained."""
    trained = [weight.requires_grad for weight in model.parameters()]
    if trained and not any(trained):
        raise ValueError(message)


def check_shapes(model: nn.Module) -> None:
    """Raise `ValueError` if a lazy module of the model has not seen a batch: its weights have no shapes yet."""
    for tensors in (model.named_parameters(), model.named_buffers()):
        for name, tensor in tensors:
            if is_lazy(tensor):
                raise ValueError(f"{name} has no shape yet; call the model once on a batch before plug-ins begin")


def check_not_compiled(model: nn.Module, plugin: str) -> None:
    """Raise `ValueError` if torch.compile has compiled the model or a module in it.

    A compiled module calls no layers in the forward pass, and does not save their inputs.
    """
    for name, module in named_modules(model).items():
        original = getattr(module.forward, "_torchdynamo_orig_callable", None)  # torch.compile marks functions so
        if original is not None or getattr(module, "_compiled_call_impl", None) is not None:
            what = f"the module {name!r}" if name else "the model"
            raise ValueError(
                f"{plugin}() changes what layers save for the backward pass, and {what} is compiled, so it calls no layers;"
                " one without torch.compile is needed"
            )


def check_weights_are_parameters(model: nn.Module, plugin: str) -> None:
    """Raise `ValueError` if a layer has a trained weight matrix that is computed, as weight_norm does."""
    for name, module in named_modules(model).items():
        for weight in _computed(module):
            raise ValueError(
                f"{plugin}() needs weights that are parameters; {f'{name}.{weight}' if name else weight} is computed from"
                " others, by weight_norm, spectral_norm, pruning or another parametrization: remove that first, as"
                " torch.nn.utils.parametrize.remove_parametrizations does"
            )


def check_dense_gradients(model: nn.Module, plugin: str) -> None:
    """Raise `ValueError` if an embedding of the model has sparse gradients."""
    for name, module in named_modules(model).items():
        if isinstance(module, EMBEDDINGS) and module.sparse and module.weight.requires_grad:
            found = f"{name}.weight" if name else "weight"
            raise ValueError(f"{plugin}() needs dense gradients; {found} has sparse ones: build it with sparse=False")


def check_norms_are_free(model: nn.Module, replaced: Container[str], plugin: str) -> None:
    """Raise `ValueError` if an embedding bounds the norms of the rows of a weight that the plug-in replaces in each call.

    torch would scale rows of the replacement, and leave the trained weight as it is.
    """
    weights = {id(weight) for name, weight in model.named_parameters() if name in replaced}
    for name, module in named_modules(model).items():
        if isinstance(module, EMBEDDINGS) and module.max_norm is not None and id(module.weight) in weights:
            raise ValueError(
                f"{plugin}() calls the model with other weights than the trained ones, and"
                f" {f'{name}.weight' if name else 'weight'} has max_norm={module.max_norm:g}, which would bound only those:"
                " an embedding without max_norm is needed"
            )


def _computed(module: nn.Module) -> Iterator[str]:
    """Yield the names of the tensors of a module that are computed from trained parameters of two or more dimensions."""
    if parametrize.is_parametrized(module):
        parts = module.get_submodule("parametrizations")
        for name, part in parts.named_children():
            if any(each.requires_grad and each.dim() > 1 for each in part.parameters()):
                yield name
    # The older weight_norm and spectral_norm, and pruning, compute a plain attribute before each call.
    own = dict(module.named_parameters(recurse=False))
    for name, value in vars(module).items():
        if isinstance(value, Tensor) and any(
            f"{name}_{part}" in own and own[f"{name}_{part}"].requires_grad for part in ("orig", "v")
        ):
            yield name
