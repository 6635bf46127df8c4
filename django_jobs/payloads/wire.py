"""From a value to JSON text that PostgreSQL and SQLite can both store."""

from __future__ import annotations

import datetime as dt
import decimal
import re
import uuid
from collections.abc import Callable
from typing import Any

import msgspec

from django_jobs.payloads.faults import MAX_DEPTH, find_fault


def _datetime(value: dt.datetime) -> dt.datetime:
    clock = (value.hour, value.minute, value.second, value.microsecond, value.tzinfo)
    return dt.datetime(value.year, value.month, value.day, *clock, fold=value.fold)


def _time(value: dt.time) -> dt.time:
    clock = (value.hour, value.minute, value.second, value.microsecond, value.tzinfo)
    return dt.time(*clock, fold=value.fold)


_PLAIN: dict[type, Callable[[Any], Any]] = {
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    bytes: bytes,
    dt.datetime: _datetime,  # Before date, whose subclass it is.
    dt.date: lambda value: dt.date(value.year, value.month, value.day),
    dt.time: _time,
    dt.timedelta: lambda value: dt.timedelta(value.days, value.seconds, value.microseconds),
    decimal.Decimal: decimal.Decimal,
    uuid.UUID: lambda value: uuid.UUID(int=value.int),
}


def _plain(value: Any) -> Any:
    """Subclasses of the plain types (``SafeString``, ``uuid6.UUID``, frozen clocks) as these."""
    for kind, plain in _PLAIN.items():
        # A bool comes here as a dict's key only, where it would become a number.
        if isinstance(value, kind) and not isinstance(value, bool):
            return plain(value)
    raise TypeError(f"{type(value).__name__} cannot be stored")


_encode = msgspec.json.Encoder(enc_hook=_plain).encode
_decode = msgspec.json.Decoder().decode
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


# PostgreSQL's jsonb writes 1e16 as 10000000000000000, which is read as an int. Written out with a
# fraction it keeps that.
_LARGE_FLOAT = re.compile(rb"(?:^|[:,\[])-?\d[\d.]*e\d")
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|-?\d[\d.]*e\d+')


def _written_out(token: re.Match[bytes]) -> bytes:
    text = token[0]
    return text if text[:1] == b'"' else f"{decimal.Decimal(text.decode()):f}.0".encode()


_ENCODING = (TypeError, ValueError, AttributeError, OverflowError, msgspec.MsgspecError)


class Refused(Exception):
    """The value cannot be stored; the message says which part and why."""


def to_json(value: object, limit: int, path: str, *, exact: bool) -> bytes:
    """``value`` as JSON of at most ``limit`` bytes; raises ``Refused``.

    ``exact`` promises that the caller compares what comes back, so that a NaN (which is written
    as ``null``) needs no search here.
    """
    try:
        raw = _encode(value)
    except (*_ENCODING, RecursionError) as error:
        raise Refused(find_fault(value, path) or f"{path}: {error}") from error
    if _LARGE_FLOAT.search(raw):
        raw = _TOKEN.sub(_written_out, raw)
    if len(raw) > limit:
        raise Refused(f"{path} takes {len(raw):,} bytes as JSON; the limit is {limit:,}")
    if b"\\u0000" in raw and _NUL.search(raw):
        raise Refused(find_fault(value, path) or f"{path} contains a NUL character")
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and _too_deep(raw):
        raise Refused(find_fault(value, path) or f"{path} is nested too deep")
    if b"NaN" in raw or b"Infinity" in raw or (not exact and b"null" in raw):
        fault = find_fault(value, path)
        if fault:
            raise Refused(fault)
    return raw


def _too_deep(raw: bytes) -> bool:
    level = [_decode(raw)]
    for _ in range(MAX_DEPTH):
        inside = (v.values() if type(v) is dict else v for v in level)
        level = [child for items in inside for child in items if type(child) in (dict, list)]
        if not level:
            return False
    return True
