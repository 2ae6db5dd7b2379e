"""The registry of methods: `register` adds a method, and `METHODS` is the live view of all, plug-ins included."""

import functools
import inspect
import logging
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, ParamSpec, TypeAlias

from fedcomp.compressor import Compressor
from fedcomp.core import CompensatedUpdate, check_bool, settings_of
from fedcomp.entropy import EntropyCode
from fedcomp.memory import LinearFeedback, Memory, NoMemory
from fedcomp.quantize import MANY, Bounded, Quantizer, squared_error

P = ParamSpec("P")
Parts: TypeAlias = tuple[Quantizer[CompensatedUpdate, Any], EntropyCode[Any], Memory]
"""What a method returns: quantizer, entropy code and memory."""

PLUGIN_GROUP = "fedcomp.methods"
"""The entry point group of packages that register methods and codecs when they are imported."""


@dataclass(frozen=True, slots=True)
class About:
    """A method's constructor, its paper, and the directions that it works in."""

    make: Callable[..., Compressor]
    paper: str
    uplink: bool
    downlink: bool


class MethodRegistry(Mapping[str, Callable[..., Compressor]]):
    """All methods: name -> constructor.  A read-only view; `register` adds to it.

    The first look-up of a name that fedcomp does not define, and the first iteration, import the plug-ins: the entry points
    of the group `fedcomp.methods`.

    Examples:
        >>> import fedcomp
        >>> str(fedcomp.METHODS["topk"](density=0.5))
        'topk(density=0.5)'
        >>> "gzip" in fedcomp.METHODS
        False
    """

    def __init__(self) -> None:
        self._methods: dict[str, About] = {}
        self._plugins_loaded = False
        self._lock = threading.RLock()

    def __getitem__(self, name: str) -> Callable[..., Compressor]:
        return self.about(name).make

    def __iter__(self) -> Iterator[str]:
        self.load_plugins()
        return iter(tuple(self._methods))

    def __len__(self) -> int:
        self.load_plugins()
        return len(self._methods)

    def about(self, name: str) -> About:
        """Return what is known about the method `name`.  Raises `KeyError` if there is no such method."""
        if name not in self._methods:
            self.load_plugins()
        return self._methods[name]

    def register(
        self, paper: str, *, uplink: bool = True, downlink: bool = True
    ) -> Callable[[Callable[P, Parts]], Callable[P, Compressor]]:
        """Return the decorator of the function `register`, for this registry."""

        def enter(compose: Callable[P, Parts]) -> Callable[P, Compressor]:
            name = compose.__name__
            signature = inspect.signature(compose)

            @functools.wraps(compose)
            def make(*args: P.args, **kwargs: P.kwargs) -> Compressor:
                settings = settings_of(signature, *args, **kwargs)
                parts = compose(*args, **kwargs)
                texts = {key: str(value) if isinstance(value, Compressor) else value for key, value in settings.items()}
                compressor = Compressor(name, tuple(texts.items()), *parts)
                _check_feedback(compressor)
                return compressor

            make.__signature__ = signature.replace(return_annotation=Compressor)  # type: ignore[attr-defined]
            with self._lock:
                if name in self._methods:
                    raise ValueError(
                        f"method {name!r} exists already ({self._methods[name].paper}); choose another name"
                    )
                self._methods[name] = About(make, paper, uplink, downlink)
            return make

        return enter

    def load_plugins(self) -> None:
        """Import the installed plug-ins, once.  A plug-in that fails is logged and skipped; the other methods still work."""
        with self._lock:
            if self._plugins_loaded:
                return
            self._plugins_loaded = True  # a plug-in may look up methods while it is imported
            for entry in entry_points(group=PLUGIN_GROUP):
                try:
                    entry.load()
                except Exception as error:  # noqa: BLE001 - foreign code may raise anything
                    logging.getLogger("fedcomp").warning(
                        "the plug-in %s = %s is skipped: %s: %s", entry.name, entry.value, type(error).__name__, error
                    )


METHODS = MethodRegistry()
"""Every method that `parse` knows: name -> constructor."""


def register(
    paper: str, *, uplink: bool = True, downlink: bool = True
) -> Callable[[Callable[P, Parts]], Callable[P, Compressor]]:
    """Return a decorator that makes a method of a function; the function's name becomes the method's name.

    The function returns quantizer, entropy code and memory.  Its arguments are the method's settings.  The compressor's text
    shows the first setting, and the settings that differ from their defaults.

    Args:
        paper: The source of the method, as ``"Author et al., 2026"``.
        uplink: Whether nodes may use it for their updates.
        downlink: Whether the server may use it for new versions of the model.

    Raises:
        ValueError: The name is taken.

    Examples:
        >>> import fedcomp
        >>> from fedcomp.entropy import SparseValues
        >>> from fedcomp.memory import LinearFeedback
        >>> from fedcomp.quantize import TopK
        >>> @fedcomp.register("Author et al., 2026")
        ... def example(density: float = 0.01) -> fedcomp.Parts:
        ...     return TopK(density), SparseValues(), LinearFeedback()
        >>> fedcomp.parse("example(density=0.5)") == example(density=0.5)
        True

    """
    return METHODS.register(paper, uplink=uplink, downlink=downlink)


def _check_feedback(compressor: Compressor) -> None:
    """Refuse error feedback around a quantizer that declares an error as long as its vector: the residual would grow."""
    if not isinstance(compressor.quantizer, Bounded) or "residual" not in compressor.memory.vectors:
        return
    error = squared_error(compressor.error_bound(MANY))
    if error >= 1 and isinstance(compressor.memory, LinearFeedback):
        bound = "has no bound" if math.isinf(error) else f"may have {error:.3g} times the square of the vector"
        raise ValueError(
            f"{compressor} has error feedback, and the error of its message {bound}: what is left would grow without end; "
            "a compressor whose error is below the vector is needed, or one without feedback"
        )


def memory(feedback: bool) -> Memory:
    """Return error feedback, or no memory."""
    check_bool("feedback", feedback)
    return LinearFeedback() if feedback else NoMemory()
