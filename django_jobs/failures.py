"""What an attempt died of, as text that is safe to store and to show."""

from __future__ import annotations

import re
import sys
import traceback
from typing import Any

from django_jobs.outcomes import Failure

MESSAGE_LIMIT = 2_000
"""Characters of a stored message."""
TRACEBACK_LIMIT = 20_000
"""Characters of a stored traceback: its head and its tail."""
CLASS_LIMIT = 200
"""Characters of a stored class path."""
MASK = "***"

_READ_LIMIT = 100_000
"""Longest half of a text that is searched for secrets; the rest is never stored anyway."""

_SECRETS = (
    "passw(?:or)?d|passphrase|pwd|secret|token|authorization|api[_-]?key|private[_-]?key"
    "|access[_-]?key|credential|session[_-]?(?:id|key)|cookie"
)
_HINTS = ("pass", "pwd", "secret", "token", "auth", "key", "credential", "session", "cookie")
# Bounded, possessive repeats: a long run of keywords costs linear time.
_ASSIGNMENT = re.compile(
    rf"""((?:{_SECRETS})[\w-]{{0,40}}+\\?["']?\s{{0,8}}+(?:=>|[:=])\s{{0,8}})"""
    r"""([rbuf]{0,2}"(?:[^"\\]|\\.)*"|[rbuf]{0,2}'(?:[^'\\]|\\.)*'|\\"[^"]*"|\\'[^']*'"""
    r"""|(?:Bearer|Basic|Token|Digest)\s+[^\s"',;]+|[^\s,;&)}\]]+)""",
    re.IGNORECASE,
)
_SECRET_NAME = re.compile(_SECRETS, re.IGNORECASE)
_COOKIE_HEADER = re.compile(r"""(cookie:[ \t]{0,8})[^\s"'][^\n"']*""", re.IGNORECASE)
_SCHEME = re.compile(r"\b((?:Bearer|Basic)\s+)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)
_URL = re.compile(r"(://[^\s:/@]{0,200}:)[^\s/@]{1,200}(@)")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def failure_of(error: BaseException) -> Failure:
    """``error`` as it is stored: redacted, cut to size, and text that every database takes.

    Never raises, even when ``str(error)`` does.
    """
    return Failure(
        error_class=_cut(_storable(_class_path(type(error))), CLASS_LIMIT),
        message=_cut(_clean(_message(error)), MESSAGE_LIMIT),
        traceback=_cut(_clean(_traceback(error)), TRACEBACK_LIMIT),
    )


def stack_of(thread: int | None) -> str:
    """Where a thread of this process is now, as a traceback is stored."""
    frame = sys._current_frames().get(thread or 0)
    if frame is None:
        return ""
    stack = "".join(traceback.format_stack(frame))
    return _cut(_clean(f"The body is still at:\n{stack}"), TRACEBACK_LIMIT)


def gist(error: Exception) -> str:
    """The class of ``error`` and the first line of its message, redacted, for a log line.

    What databases add in further lines quotes the row: a payload, a result.
    """
    line = _message(error).strip().partition("\n")[0]
    return _cut(f"{type(error).__name__}: {_clean(line)}", MESSAGE_LIMIT)


def redact(text: str) -> str:
    """``text`` with the values of passwords, tokens, keys, cookies and the like masked."""
    # Most texts have none of these words, and a plain search is a hundred times cheaper.
    lower = text.lower()
    if "cookie" in lower:
        text = _COOKIE_HEADER.sub(rf"\1{MASK}", text)
    if any(hint in lower for hint in _HINTS):
        text = _ASSIGNMENT.sub(rf"\1{MASK}", text)
    if "bearer" in lower or "basic" in lower:
        text = _SCHEME.sub(rf"\1{MASK}", text)
    return _URL.sub(rf"\1{MASK}\2", text) if "://" in text else text


def masked(value: Any) -> Any:
    """A decoded JSON value to show: what secret-looking keys hold is masked, at any depth.

    Texts are redacted as well. Raises ``RecursionError`` for a value of absurd depth.
    """
    if isinstance(value, dict):
        return {
            key: MASK if _SECRET_NAME.search(key) and item is not None else masked(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [masked(item) for item in value]
    return redact(value) if isinstance(value, str) else value


def _class_path(kind: type[BaseException]) -> str:
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:
        return f"<str() of the error raised {type(broken).__name__}>"


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except Exception as broken:
        return f"<the traceback cannot be shown: {type(broken).__name__}>"


def _clean(text: str) -> str:
    if len(text) > 2 * _READ_LIMIT:
        text = f"{text[:_READ_LIMIT]}\n{text[-_READ_LIMIT:]}"
    return redact(_storable(text))


def _storable(text: str) -> str:
    return _UNSTORABLE.sub("\ufffd", text)


def _cut(text: str, limit: int) -> str:
    """At most ``limit`` characters: the head says where it began, the tail what it came to."""
    if len(text) <= limit:
        return text
    mark = f"\n… {len(text) - limit} characters cut …\n"
    room = limit - len(mark)
    return f"{text[: room - room // 2]}{mark}{text[-(room // 2) :]}"
