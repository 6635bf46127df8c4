"""What in a value cannot be stored, and where: the slow, exact look after a fast suspicion."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import math
import re
import reprlib
import uuid
from collections.abc import Iterator
from typing import Any

import msgspec
from django.utils.functional import Promise

MAX_DEPTH = 64
"""Containers within containers that a payload may have."""

SCALARS = (
    str,
    int,
    float,
    type(None),
    dt.date,
    dt.time,
    dt.timedelta,
    decimal.Decimal,
    uuid.UUID,
    bytes,
    bytearray,
    memoryview,
)
_KEYS = (str, int, float, dt.date, dt.time, dt.timedelta, decimal.Decimal, uuid.UUID, bytes)
_SURROGATE = re.compile("[\ud800-\udfff]")


def find_fault(value: object, path: str, depth: int = 0) -> str | None:
    """A sentence that names the first place in ``value`` that cannot be stored, or ``None``."""
    reason = _leaf_fault(value)
    if reason:
        return f"{path} {reason}"
    if isinstance(value, SCALARS):
        return None
    if depth >= MAX_DEPTH:
        return f"{path} is nested deeper than {MAX_DEPTH} levels"
    for step, child in children(value):
        found = find_fault(child, path + step, depth + 1)
        if found:
            return found
    return None


def children(value: object) -> Iterator[tuple[str, Any]]:
    """The parts of a container, each with the text that leads to it."""
    if isinstance(value, dict):
        for key, item in value.items():
            step = f"[{reprlib.repr(key)}]"
            yield f" key {step}", _Key(key)
            yield step, item
    elif isinstance(value, list | tuple | set | frozenset):
        for index, item in enumerate(value):
            yield f"[{index}]", item
    elif isinstance(value, enum.Enum):
        yield ".value", value.value
    else:
        for name in field_names(value):
            yield f".{name}", getattr(value, name, None)


def field_names(value: object) -> tuple[str, ...]:
    """The fields of a dataclass instance, a msgspec Struct or an attrs object; else nothing."""
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return tuple(field.name for field in dataclasses.fields(value))
    return tuple(field.name for field in getattr(type(value), "__attrs_attrs__", ()))


@dataclasses.dataclass(frozen=True, slots=True)
class _Key:
    """A dict's key on its way through ``find_fault``: fewer types may be keys."""

    key: Any


def _leaf_fault(value: object) -> str | None:
    if isinstance(value, _Key):
        return _key_fault(value.key)
    if isinstance(value, str):
        return text_fault(value)
    if isinstance(value, float):
        return None if math.isfinite(value) else f"is {value}, which JSON cannot hold"
    if isinstance(value, decimal.Decimal):
        return None if value.is_finite() else f"is {value}, which is no finite number"
    if isinstance(value, (*SCALARS, dict, list, tuple, set, frozenset, enum.Enum)):
        return None
    return None if field_names(value) or _is_record(value) else _unsupported(value)


def _key_fault(key: object) -> str | None:
    if isinstance(key, bool) or not isinstance(key, (*_KEYS, enum.Enum)):
        return f"is a {type(key).__name__}, which cannot be a key in JSON"
    return _leaf_fault(key.value if isinstance(key, enum.Enum) else key)


def _is_record(value: object) -> bool:
    return isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(type(value))


def text_fault(text: str) -> str | None:
    """Why the databases cannot store ``text``, or ``None``."""
    if "\x00" in text:
        return "contains a NUL character, which the database cannot store"
    if _SURROGATE.search(text):
        return "contains a lone surrogate, which is no valid text"
    return None


def _unsupported(value: object) -> str:
    kind = type(value)
    text = f"is of type {kind.__module__}.{kind.__qualname__}, which cannot be stored"
    if hasattr(kind, "_meta") and hasattr(value, "pk"):
        return f"{text}: pass the primary key and load the row in the body"
    if isinstance(value, Promise):
        return f"{text}: pass str(...) of the lazy text"
    if hasattr(kind, "values_list"):
        return f"{text}: pass a list of primary keys"
    return text


def difference(given: Any, back: Any, path: str) -> str | None:
    """How ``back`` (decoded) differs from ``given``, as a sentence, or ``None`` when it does not.

    Times are compared as instants: a zone comes back as its offset, and Python calls two spellings
    of a repeated hour unequal. Records are compared by field, since they may define no equality.
    """
    if isinstance(given, dict) and isinstance(back, dict):
        return _dict_difference(given, back, path)
    if isinstance(given, list | tuple) and isinstance(back, list | tuple):
        if isinstance(given, list) is isinstance(back, list) and len(given) == len(back):
            pairs = zip(given, back, strict=True)
            found = (difference(a, b, f"{path}[{i}]") for i, (a, b) in enumerate(pairs))
            return next(filter(None, found), None)
    elif type(given) is type(back) and field_names(given):
        names = field_names(given)
        found = (difference(getattr(given, n), getattr(back, n), f"{path}.{n}") for n in names)
        return next(filter(None, found), None)
    elif _same_scalar(given, back):
        return None
    return changed(given, back, path)


def _dict_difference(given: dict[Any, Any], back: dict[Any, Any], path: str) -> str | None:
    for key, value in given.items():
        if key not in back:
            return (
                f"{path} has the {type(key).__name__} key {reprlib.repr(key)}, which would come "
                f"back as text: annotate the dict's key type, for example dict[int, str]"
            )
        found = difference(value, back[key], f"{path}[{reprlib.repr(key)}]")
        if found:
            return found
    if len(given) != len(back):
        return f"{path} would come back with other keys"
    return None


def _same_scalar(given: Any, back: Any) -> bool:
    if _is_instant(given) and _is_instant(back):
        return bool(given.astimezone(dt.UTC) == back.astimezone(dt.UTC))
    if isinstance(given, dt.time) and isinstance(back, dt.time):
        return given == back and (given.tzinfo is None) is (back.tzinfo is None)
    if isinstance(given, float) and isinstance(back, decimal.Decimal):
        return False
    return bool(given == back)


def _is_instant(value: object) -> bool:
    return isinstance(value, dt.datetime) and value.utcoffset() is not None


def changed(given: object, back: object, path: str) -> str:
    """The sentence for a value that JSON would change."""
    was, becomes = type(given).__name__, type(back).__name__
    if was == becomes:
        return f"{path} is {reprlib.repr(given)} and would come back as {reprlib.repr(back)}"
    return (
        f"{path} is a {was} and would come back as a {becomes}: "
        f"annotate it with its type, or pass a {becomes}"
    )
