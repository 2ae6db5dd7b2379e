"""A registry: constructors by name, those of installed plug-ins included."""

import functools
import inspect
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from typing import Generic, ParamSpec, Protocol, TypeVar

from fedcomp.core.call_text import arguments_of, settings_of

P = ParamSpec("P")
R = TypeVar("R")


class Cited(Protocol):
    """What is known of an entry, its paper above all."""

    @property
    def paper(self) -> str:
        """The source, as ``"Author et al., 2026"``."""
        ...


T = TypeVar("T")
InfoT = TypeVar("InfoT", bound=Cited)


class Registry(Mapping[str, Callable[..., T]], Generic[T, InfoT]):
    """Name -> constructor.  A read-only mapping; `register` adds to it.

    The first look-up of a name that is not there, and the first iteration, import the plug-ins: the entry points of `group`.

    Args:
        noun: What an entry is called in errors.
        group: The entry point group of packages that register entries when they are imported.
        kind: The class of what the constructors return.

    Examples:
        >>> import fedcomp
        >>> str(fedcomp.METHODS["topk"](density=0.5))
        'topk(density=0.5)'
        >>> "gzip" in fedcomp.METHODS
        False
        >>> fedcomp.METHODS.settings("powersgd")
        'rank=2'
    """

    def __init__(self, noun: str, group: str, kind: type[T]) -> None:
        self._noun, self._group, self._kind = noun, group, kind
        self._entries: dict[str, tuple[Callable[..., T], InfoT]] = {}
        self._plugins_loaded = False
        self._lock = threading.RLock()

    def __getitem__(self, name: str) -> Callable[..., T]:
        return self._entry(name)[0]

    def __iter__(self) -> Iterator[str]:
        self.load_plugins()
        return iter(tuple(self._entries))

    def __len__(self) -> int:
        self.load_plugins()
        return len(self._entries)

    def about(self, name: str) -> InfoT:
        """Return what is known of the entry `name`.  Raises `KeyError` if there is none."""
        return self._entry(name)[1]

    def settings(self, name: str) -> str:
        """Return the settings of the entry `name` with their defaults, as ``density=0.01, feedback=True``; "" for none."""
        parameters = inspect.signature(self[name]).parameters.values()
        return ", ".join(f"{item.name}={item.default!r}" for item in parameters)

    def register(
        self, info: InfoT, make: Callable[[str, tuple[tuple[str, object], ...], R], T]
    ) -> Callable[[Callable[P, R]], Callable[P, T]]:
        """Return a decorator that adds a constructor under the name of the decorated function.

        The constructor calls the function with its settings, numpy scalars as Python ones, and returns
        ``make(name, settings, result)`` with those settings that its text needs, as `settings_of` says.  The decorator raises
        `ValueError` for a name that is taken, and for a setting without a default or that a text cannot name.
        """

        def enter(compose: Callable[P, R]) -> Callable[P, T]:
            name, signature = compose.__name__, inspect.signature(compose)
            for item in signature.parameters.values():
                if item.default is item.empty or item.kind is item.POSITIONAL_ONLY:
                    raise ValueError(
                        f"{self._noun} {name!r} has the setting {str(item)!r}; each setting has a name and a default, "
                        f"as in {item.name}=0.1"
                    )

            @functools.wraps(compose)
            def construct(*args: P.args, **kwargs: P.kwargs) -> T:
                given = arguments_of(signature, *args, **kwargs)
                settings = settings_of(given)
                return make(name, tuple(settings.items()), compose(*given.args, **given.kwargs))

            construct.__signature__ = signature.replace(return_annotation=self._kind)  # type: ignore[attr-defined]
            with self._lock:
                if name in self._entries:
                    paper = self._entries[name][1].paper
                    raise ValueError(f"{self._noun} {name!r} exists already ({paper}); choose another name")
                self._entries[name] = construct, info
            return construct

        return enter

    def load_plugins(self) -> None:
        """Import the installed plug-ins, once.  One that fails is logged and skipped; the other entries still work."""
        with self._lock:
            if self._plugins_loaded:
                return
            self._plugins_loaded = True  # a plug-in may look up names while it is imported
            for entry in entry_points(group=self._group):
                try:
                    entry.load()
                except Exception as error:  # noqa: BLE001 - foreign code may raise anything
                    logging.getLogger("fedcomp").warning(
                        "the plug-in %s = %s is skipped: %s: %s", entry.name, entry.value, type(error).__name__, error
                    )

    def _entry(self, name: str) -> tuple[Callable[..., T], InfoT]:
        if name not in self._entries:
            self.load_plugins()
        return self._entries[name]
