"""Single values: what a body returns and the progress that it reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from django_jobs.errors import ResultError
from django_jobs.payloads.declared import check_type, hints_of, name_of
from django_jobs.payloads.wire import Refused, to_json


def encode_value(value: object, limit: int, what: str) -> str | None:
    """``value`` as JSON text of at most ``limit`` bytes; ``None`` stays ``None``.

    ``what`` names the value in messages. Raises ``ResultError`` for what cannot be stored: NaN,
    NUL characters, lone surrogates, unknown types, too deep, too large.
    """
    if value is None:
        return None
    try:
        return to_json(value, limit, what, exact=False).decode()
    except Refused as error:
        raise ResultError(f"{error}.") from error


def decode_value(text: str | bytes | None, type: Any = Any) -> Any:
    """Stored JSON as a value of ``type``; ``None`` stays ``None``.

    Raises ``ResultError`` when the text does not fit the type.
    """
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=type)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise ResultError(f"The stored value cannot be read: {error}.") from error


@dataclass(frozen=True, slots=True)
class Result:
    """What a job's function returns, by its return annotation (without one: any JSON value)."""

    job: str
    type: Any

    @classmethod
    def of(cls, fn: Callable[..., Any]) -> Result:
        """Reads the annotation of ``fn``; raises ``DeclarationError`` if it cannot be stored."""
        declared = hints_of(fn).get("return", Any)
        if declared is type(None):
            declared = Any
        check_type(fn, declared, "the return value")
        return cls(name_of(fn), declared)

    def encode(self, value: object, limit: int) -> str | None:
        """As ``encode_value``, for a value that the function returned."""
        return encode_value(value, limit, f"{self.job}: the return value")

    def decode(self, text: str | bytes | None) -> Any:
        """As ``decode_value``, for a value that the function returned."""
        return decode_value(text, self.type)
