"""Texts that jobs are told apart by: idempotency keys, tenants, queues and names."""

from __future__ import annotations

import datetime as dt
import enum
import inspect
import string
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import msgspec

from django_jobs.errors import DeclarationError, KeyRefused

MAX_KEY_BYTES = 512
MAX_NAME = 200
MAX_QUEUE = 100
MAX_TENANT = 200
"""Longest texts that the columns hold: bytes of UTF-8 for a key, characters for the others."""


class PerCall(enum.Enum):
    """The type of ``PER_CALL``."""

    PER_CALL = "PER_CALL"

    def __repr__(self) -> str:
        return "PER_CALL"


PER_CALL: Final = PerCall.PER_CALL
"""Every call is work of its own: nothing is deduplicated."""

Spec = str | Callable[..., str]
"""A template over argument names, or a callable that takes arguments by name."""


def plain_text(value: object, what: str, *, chars: int = 0, octets: int = 0) -> str:
    """``value`` if it is storable text within its limit; raises ``KeyRefused``."""
    if not isinstance(value, str):
        kind = type(value).__name__
        raise KeyRefused(f"{what} must be text, not {kind}; use str(...) if that is meant.")
    if not value:
        raise KeyRefused(f"{what} is empty.")
    if "\x00" in value:
        raise KeyRefused(f"{what} contains a NUL character.")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise KeyRefused(f"{what} contains a lone surrogate, which is no valid text.") from None
    if octets and size > octets:
        raise KeyRefused(f"{what} takes {size} bytes; at most {octets} are allowed.")
    if chars and len(value) > chars:
        raise KeyRefused(f"{what} has {len(value)} characters; at most {chars} are allowed.")
    return str.__str__(value)


@dataclass(frozen=True, slots=True)
class Derivation:
    """How a key or a tenant follows from the arguments of a call."""

    what: str
    derive: Callable[[Mapping[str, Any]], object]
    arguments: frozenset[str]
    """The arguments that it depends on."""
    chars: int = 0
    octets: int = 0

    def __call__(self, arguments: Mapping[str, Any]) -> str:
        """The text for these (decoded) arguments; raises ``KeyRefused``."""
        return plain_text(self.derive(arguments), self.what, chars=self.chars, octets=self.octets)

    def or_none(self, arguments: Mapping[str, Any]) -> str | None:
        """As a call, but a callable may answer ``None``: nothing for these arguments."""
        value = self.derive(arguments)
        if value is None:
            return None
        return plain_text(value, self.what, chars=self.chars, octets=self.octets)


def derivation(
    spec: Spec,
    names: tuple[str, ...],
    *,
    job: str,
    field: str,
    chars: int = 0,
    octets: int = 0,
) -> Derivation:
    """Checks ``spec`` against the argument ``names`` of ``job``; raises ``DeclarationError``.

    ``field`` is the keyword of ``@job`` that holds it.
    """
    what = f"{job}: {field}"
    if isinstance(spec, str):
        template = Template.parse(spec, names, what)
        return Derivation(what, template.render, template.fields, chars, octets)
    if callable(spec) and not isinstance(spec, type):
        taken = _taken(spec, names, what)
        return Derivation(what, _by_name(spec, taken), frozenset(taken), chars, octets)
    raise DeclarationError(
        f"{what}={spec!r} is neither a template nor a callable. "
        f'Write a template such as "{field}:{{{names[0] if names else "argument"}}}".'
    )


@dataclass(frozen=True, slots=True)
class Template:
    """A text with argument names in braces: ``"charge:{order_id}"``.

    Different values of the arguments never give one text: where a template has several fields,
    a character that separates two of them is percent-encoded within values. Values are written by
    ``text_of``.
    """

    what: str
    parts: tuple[tuple[str, str | None], ...]
    """Each literal with the argument that follows it."""
    fields: frozenset[str]
    escapes: Mapping[int, str]

    @classmethod
    def parse(cls, text: str, names: tuple[str, ...], what: str) -> Template:
        """Raises ``DeclarationError`` for anything but plain names of arguments in braces."""
        if not text.strip():
            raise DeclarationError(f'{what} is empty. Write for example "charge:{{order_id}}".')
        try:
            parsed = list(string.Formatter().parse(text))
        except ValueError as error:
            raise DeclarationError(
                f"{what}={text!r} is no template ({error}). Double a brace that is meant as text."
            ) from error
        for _, name, spec, conversion in parsed:
            if name is not None:
                _check_field(name, bool(spec or conversion), names, f"{what}={text!r}")
        parts = tuple((literal, name) for literal, name, _, _ in parsed)
        fields = frozenset(name for _, name in parts if name is not None)
        return cls(what, parts, fields, _escapes(parts, f"{what}={text!r}"))

    def render(self, arguments: Mapping[str, Any]) -> str:
        """The text for these arguments; raises ``KeyRefused`` when one is ``None``."""
        pieces = []
        for literal, name in self.parts:
            pieces.append(literal)
            if name is not None:
                value = arguments[name]
                if value is None:
                    raise self._nothing(name)
                text = text_of(value)
                pieces.append(text.translate(self.escapes) if self.escapes else text)
        return "".join(pieces)

    def _nothing(self, name: str) -> KeyRefused:
        return KeyRefused(
            f"{self.what} uses the argument {name!r}, which is None in this call. Give it a "
            f"value, or derive the text with a callable that says what None means."
        )


def text_of(value: Any) -> str:
    """How a value is written in a key: the same in every process, equal values alike.

    An enum is written as its value, an aware datetime in UTC, a container as JSON with its keys
    and sets sorted. Numbers are written as they came: ``1``, ``1.0`` and ``Decimal("1.00")`` are
    three texts. Raises ``KeyRefused`` for a set that cannot be sorted.
    """
    if type(value) is int:
        return str(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, dt.datetime):
        aware = value.utcoffset() is not None
        return (value.astimezone(dt.UTC) if aware else value).isoformat()
    if isinstance(value, int | float | Decimal | uuid.UUID | dt.date | dt.time | dt.timedelta):
        return str(value)
    try:
        plain = msgspec.to_builtins(value, str_keys=True, order="deterministic")
    except TypeError as error:
        raise KeyRefused(f"A {type(value).__name__} has no one text: {error}.") from error
    return msgspec.json.encode(plain).decode()


def _check_field(name: str, formatted: bool, names: tuple[str, ...], where: str) -> None:
    if name in names and not formatted:
        return
    if formatted or not name.isidentifier():
        raise DeclarationError(
            f"{where}: {{{name}}} is more than the name of an argument. Use plain names (and a "
            f"callable for anything else)."
        )
    known = ", ".join(names) or "none"
    raise DeclarationError(f"{where}: the job has no argument {name!r}. Its arguments: {known}.")


def _escapes(parts: tuple[tuple[str, str | None], ...], where: str) -> Mapping[int, str]:
    named = [number for number, (_, name) in enumerate(parts) if name is not None]
    if len(named) < 2:
        return {}
    between = [parts[number][0] for number in range(named[0] + 1, named[-1] + 1)]
    if not all(between):
        raise DeclarationError(
            f"{where}: two fields touch, so that different calls could share one text. Put a "
            f"separator between them, for example a colon."
        )
    return {ord(char): f"%{ord(char):02X}" for char in {"%", *(text[0] for text in between)}}


def _taken(spec: Callable[..., str], names: tuple[str, ...], what: str) -> tuple[str, ...]:
    """The arguments to call ``spec`` with: those it names, or all where it has ``**kwargs``."""
    if inspect.iscoroutinefunction(spec):
        raise DeclarationError(f"{what} is an async function. Use a plain one.")
    signature = inspect.signature(spec)
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    if inspect.Parameter.VAR_KEYWORD in kinds:
        taken = names
    else:
        taken = tuple(name for name in names if name in signature.parameters)
    try:
        signature.bind(**dict.fromkeys(taken))
    except TypeError as error:
        raise DeclarationError(
            f"{what}: the callable cannot be called with the job's arguments by name ({error}). "
            f"Its parameters must be among {', '.join(names) or 'none'}."
        ) from error
    return taken


def _by_name(
    spec: Callable[..., str], taken: tuple[str, ...]
) -> Callable[[Mapping[str, Any]], object]:
    return lambda arguments: spec(**{name: arguments[name] for name in taken})
