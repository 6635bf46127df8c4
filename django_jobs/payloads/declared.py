"""What a job's signature declares, checked when its module loads."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from django_jobs.errors import DeclarationError
from django_jobs.payloads.wire import Refused, to_json

MISSING: Any = inspect.Parameter.empty
_ANYTHING = (inspect.Parameter.empty, object, typing.Never, typing.NoReturn)
_REFUSED_KINDS = {
    inspect.Parameter.VAR_POSITIONAL: "declare one list argument",
    inspect.Parameter.VAR_KEYWORD: "declare one dict argument",
    inspect.Parameter.POSITIONAL_ONLY: "remove the / from the signature",
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a job. ``default`` is ``MISSING`` where the caller must give it."""

    name: str
    type: Any
    default: Any
    keyword_only: bool


def name_of(fn: Callable[..., Any]) -> str:
    """The dotted name of a function, as messages show it."""
    return f"{fn.__module__}.{fn.__qualname__}"


def hints_of(fn: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of ``fn``, resolved; raises ``DeclarationError`` when one cannot be."""
    try:
        hints = typing.get_type_hints(fn, include_extras=True)
    except Exception as error:
        raise DeclarationError(
            f"{name_of(fn)}: an annotation cannot be resolved ({error}). Import its type when "
            f"the module runs, not under TYPE_CHECKING."
        ) from error
    return {name: Any if hint in _ANYTHING else hint for name, hint in hints.items()}


def parameters_of(fn: Callable[..., Any]) -> tuple[Parameter, ...]:
    """The arguments of ``fn``; raises ``DeclarationError`` for one that cannot be stored."""
    hints = hints_of(fn)
    found = []
    for name, declared in inspect.signature(fn).parameters.items():
        if declared.kind in _REFUSED_KINDS:
            raise DeclarationError(
                f"{name_of(fn)}: a job cannot take {declared}, because arguments are stored by "
                f"name; {_REFUSED_KINDS[declared.kind]}."
            )
        keyword_only = declared.kind is inspect.Parameter.KEYWORD_ONLY
        parameter = Parameter(name, hints.get(name, Any), declared.default, keyword_only)
        check_type(fn, parameter.type, f"argument {name!r}")
        _check_default(fn, parameter)
        found.append(parameter)
    return tuple(found)


def check_type(fn: Callable[..., Any], declared: Any, what: str) -> None:
    """Raises ``DeclarationError`` unless msgspec can bring a value of this type back."""
    try:
        info = msgspec.inspect.type_info(declared)
    except Exception as error:
        raise _unfit(fn, declared, what, str(error)) from error
    for part in parts_of(info):
        if isinstance(part, msgspec.inspect.CustomType):
            raise _unfit(fn, declared, what, _hint(part.cls))
        if isinstance(part, msgspec.inspect.RawType):
            raise _unfit(fn, declared, what, "raw JSON may be rewritten by the database")


def parts_of(info: Any, seen: set[int] | None = None) -> Iterator[msgspec.inspect.Type]:
    """Every type within a type, once."""
    seen = set() if seen is None else seen
    if id(info) in seen:
        return
    seen.add(id(info))
    if isinstance(info, tuple):
        for item in info:
            yield from parts_of(item, seen)
    elif isinstance(info, msgspec.inspect.Type | msgspec.inspect.Field):
        if isinstance(info, msgspec.inspect.Type):
            yield info
        for name in info.__struct_fields__:
            yield from parts_of(getattr(info, name), seen)


def _check_default(fn: Callable[..., Any], parameter: Parameter) -> None:
    if parameter.default is MISSING:
        return
    name = parameter.name
    try:
        raw = to_json(parameter.default, 2**31, f"the default of argument {name!r}", exact=True)
        msgspec.json.decode(raw, type=parameter.type)
    except (Refused, msgspec.MsgspecError) as error:
        raise DeclarationError(
            f"{name_of(fn)}: the default of argument {name!r} does not fit its type "
            f"{_shown(parameter.type)} ({error}). Change the default or the annotation."
        ) from error


def _unfit(fn: Callable[..., Any], declared: Any, what: str, reason: str) -> DeclarationError:
    return DeclarationError(
        f"{name_of(fn)}: {what} has the type {_shown(declared)}, which cannot be stored: {reason}. "
        f"Use plain types, dataclasses or msgspec Structs."
    )


def _hint(cls: Any) -> str:
    name = f"{cls.__module__}.{cls.__qualname__}" if isinstance(cls, type) else str(cls)
    if hasattr(cls, "_meta") and hasattr(cls, "objects"):
        return f"{name} is a model; take its primary key and load the row in the body"
    return f"nothing says how {name} is written as JSON"


def _shown(declared: Any) -> str:
    return declared.__qualname__ if isinstance(declared, type) else str(declared)
