"""The arguments of one job function: bound, written and read by its signature."""

from __future__ import annotations

import copy
import difflib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from django_jobs.errors import DeclarationError, PayloadError
from django_jobs.payloads.declared import (
    MISSING,
    Parameter,
    name_of,
    parameters_of,
    parts_of,
)
from django_jobs.payloads.faults import difference, find_fault
from django_jobs.payloads.wire import Refused, to_json

_AT = re.compile(r" - at `\$\.?(?P<where>[^`]+)`$")
_UNKNOWN = re.compile(r"^Object contains unknown field `(?P<name>[^`]+)`$")
_ABSENT = re.compile(r"^Object missing required field `(?P<name>[^`]+)`$")


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a job's function takes. Built once, by ``Arguments.of(fn)``, when its module loads.

    Three changes on the way are accepted as equal: an ``int`` given for a ``float``, a subclass
    of a plain type (it comes back as the plain type), and a time zone (it comes back as its
    offset: the same instant). Everything else must come back equal, or is refused.
    """

    job: str
    names: tuple[str, ...]
    signature: str
    _positional: tuple[str, ...]
    _defaults: Mapping[str, Any]
    _decoder: msgspec.json.Decoder[Any]
    _deceptive: bool
    """Some type here can come back changed and yet compare equal: compare part by part."""

    @classmethod
    def of(cls, fn: Callable[..., Any]) -> Arguments:
        """Reads the signature of ``fn``; raises ``DeclarationError`` for what cannot be stored."""
        parameters = parameters_of(fn)
        record = _record(fn, parameters)
        parts = parts_of(msgspec.inspect.type_info(record))
        deceptive = (msgspec.inspect.DecimalType, msgspec.inspect.TimeType)
        return cls(
            job=name_of(fn),
            names=tuple(p.name for p in parameters),
            signature=f"{fn.__name__}{inspect.signature(fn)}",
            _positional=tuple(p.name for p in parameters if not p.keyword_only),
            _defaults={p.name: p.default for p in parameters if p.default is not MISSING},
            _decoder=msgspec.json.Decoder(record),
            _deceptive=any(isinstance(part, deceptive) for part in parts),
        )

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The call's arguments by name, defaults filled in; raises ``PayloadError``."""
        if len(args) == len(self._positional) == len(self.names) and not kwargs:
            return dict(zip(self.names, args, strict=True))  # The usual call, in half the time.
        given = {**self._defaults, **kwargs}
        if args:
            given = {**given, **dict(zip(self._positional, args, strict=False))}
        try:
            bound = {name: given[name] for name in self.names}
        except KeyError:
            raise self._wrong_call(args, kwargs) from None
        overfull = len(args) > len(self._positional) or len(given) > len(bound)
        if overfull or (args and not kwargs.keys().isdisjoint(self._positional[: len(args)])):
            raise self._wrong_call(args, kwargs)
        return bound

    def encode(self, bound: Mapping[str, Any], limit: int) -> tuple[str, dict[str, Any]]:
        """``bound`` as JSON text, and the arguments as a worker will read them.

        ``limit`` is in bytes. Raises ``PayloadError`` naming the part that cannot be stored, does
        not fit its type, or would come back changed.
        """
        try:
            raw = to_json(bound, limit, "arguments", exact=True)
            decoded = self._read(raw)
        except Refused as error:
            raise self._refused(str(error)) from error
        except (msgspec.MsgspecError, RecursionError) as error:
            fault = find_fault(bound, "arguments")
            raise (self._refused(fault) if fault else self._unfit(error)) from error
        if self._deceptive or decoded != bound:
            changed = difference(bound, decoded, "arguments")
            if changed:
                raise self._refused(find_fault(bound, "arguments") or changed)
        return raw.decode(), decoded

    def decode(self, text: str | bytes) -> dict[str, Any]:
        """Stored JSON as arguments for the body; an absent one takes its default.

        Raises ``PayloadError`` when the text does not fit the signature (which may have changed
        since it was stored).
        """
        try:
            return self._read(text)
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            raise self._unfit(error) from error

    def _read(self, text: str | bytes) -> dict[str, Any]:
        values = msgspec.structs.astuple(self._decoder.decode(text))
        return dict(zip(self.names, values, strict=True))

    def _refused(self, reason: str) -> PayloadError:
        return PayloadError(f"{self.job}: {reason}.")

    def _unfit(self, error: Exception) -> PayloadError:
        text = str(error)
        unknown, absent, at = _UNKNOWN.match(text), _ABSENT.match(text), _AT.search(text)
        if unknown:
            reason = f"the stored payload has an argument {unknown['name']!r} that it does not take"
        elif absent:
            reason = f"the stored payload lacks the argument {absent['name']!r}; give it a default"
        elif at:
            reason = f"argument {at['where']!r}: {text[: at.start()]}"
        else:
            reason = f"the stored payload cannot be read: {text}"
        return PayloadError(f"{self.job}: {reason}. Expected {self.signature}.")

    def _wrong_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> PayloadError:
        filled = self._positional[: len(args)]
        faults = [_unknown(name, self.names) for name in kwargs if name not in self.names]
        faults += [f"argument {name!r} is given twice" for name in filled if name in kwargs]
        if len(args) > len(self._positional):
            faults.append(f"{len(args)} positional arguments, at most {len(self._positional)}")
        known = {*self._defaults, *filled, *kwargs}
        faults += [f"argument {name!r} is missing" for name in self.names if name not in known]
        return PayloadError(f"{self.job}: {'; '.join(faults)}. Expected {self.signature}.")


def _unknown(name: str, names: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(name, names, 1)
    return f"no argument {name!r}" + (f" (did you mean {near[0]!r}?)" if near else "")


def _record(fn: Callable[..., Any], parameters: tuple[Parameter, ...]) -> type[msgspec.Struct]:
    """A Struct with one field per argument.

    The fields have neutral names, since an argument may be called like an attribute of Struct.
    """
    declared: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    rename = {}
    for number, p in enumerate(parameters):
        field = f"f{number}"
        rename[field] = p.name
        if p.default is MISSING:
            declared.append((field, p.type))
        else:
            factory = _copier(p.default)
            declared.append((field, p.type, msgspec.field(default_factory=factory)))
    try:
        return msgspec.defstruct(
            "Arguments", declared, rename=rename, forbid_unknown_fields=True, kw_only=True
        )
    except Exception as error:
        raise DeclarationError(
            f"{name_of(fn)}: its arguments cannot be stored ({error}). Simplify their types."
        ) from error


def _copier(default: Any) -> Callable[[], Any]:
    return lambda: copy.deepcopy(default)
