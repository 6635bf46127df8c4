"""Every job that this process has declared, by name."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from django_jobs.errors import DeclarationError

if TYPE_CHECKING:
    from django_jobs.definitions.declared import Definition

_definitions: dict[str, Definition[Any, Any]] = {}
_coroutines: list[str] = []


def registry() -> Mapping[str, Definition[Any, Any]]:
    """All jobs, sorted by name: the same order on every machine."""
    return MappingProxyType(dict(sorted(_definitions.items())))


def definition(name: str) -> Definition[Any, Any] | None:
    """The job of this name, if this process has declared one."""
    return _definitions.get(name)


def coroutines() -> Sequence[str]:
    """The names of the jobs whose bodies are async."""
    return _coroutines


def register(declared: Definition[Any, Any]) -> None:
    """Adds a job; raises ``DeclarationError`` when another one has its name (which stays).

    A job whose module is loaded again replaces itself.
    """
    seated = _definitions.get(declared.name)
    if seated is not None and not _is_reload(seated, declared):
        raise DeclarationError(
            f"Two jobs are called {declared.name!r}: {_place(seated)} and {_place(declared)}. "
            f"Rename one, or give it name=."
        )
    _definitions[declared.name] = declared
    # A list of its own for each state of the registry: a worker reads it while modules load.
    global _coroutines
    _coroutines = [name for name, one in _definitions.items() if one.is_async]


def _is_reload(seated: Definition[Any, Any], declared: Definition[Any, Any]) -> bool:
    old, new = seated.fn, declared.fn
    if (old.__module__, old.__qualname__) != (new.__module__, new.__qualname__):
        return False
    if _file(old) != _file(new):
        return False
    # While a module is imported for the first time, the same name is a second function in it.
    spec = getattr(sys.modules.get(new.__module__), "__spec__", None)
    first_import = bool(getattr(spec, "_initializing", False))
    same_module = getattr(old, "__globals__", None) is getattr(new, "__globals__", None)
    return not (first_import and same_module)


def _file(fn: Any) -> str:
    return str(fn.__code__.co_filename)


def _place(declared: Definition[Any, Any]) -> str:
    fn: Any = declared.fn
    return f"{fn.__module__}.{fn.__qualname__} ({_file(fn)}:{fn.__code__.co_firstlineno})"
