"""Job data as HTML. Whatever callers stored is text here, never markup.

Each function that returns ``SafeString`` builds it with ``format_html``, which escapes.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from django_jobs.failures import masked, redact

EMPTY = "-"
CELL_LIMIT = 60
"""Characters of a text in a list."""
TEXT_LIMIT = 10_000
"""Characters of a text on a page of its own."""
PARSE_LIMIT = 4_000_000
"""Characters of a JSON document that is still read and masked; a longer one is not shown."""

_PIECES = re.compile(r"(?<=[._:/@-])")
_INVISIBLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def visible(text: str) -> str:
    r"""``text`` with control, bidi and zero-width characters written out, as in ``\u202e``.

    They could make a page read differently from what is stored.
    """
    if text.isprintable() and text.isascii():
        return text
    return "".join(
        f"\\u{ord(c):04x}" if c not in "\n\t" and unicodedata.category(c) in _INVISIBLE else c
        for c in text
    )


def cut(text: str, limit: int) -> str:
    """At most ``limit`` characters of ``text``, and a note when that is not all."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n… {len(text) - limit:,} more characters are not shown"


def cell(value: object) -> SafeString | str:
    """A text in a list: one short piece, all of it (up to a limit) when pointed at."""
    if value in (None, ""):
        return EMPTY
    text = visible(str(value)[:1000])
    if len(text) <= CELL_LIMIT:
        return format_html('<span class="dj-cell">{}</span>', _breakable(text))
    short = f"{text[: CELL_LIMIT - 1].rstrip()}…"
    return format_html('<span class="dj-cell" title="{}">{}</span>', text, _breakable(short))


def _breakable(text: str) -> SafeString:
    """``text`` that a narrow column breaks after its dots and the like, not in a word."""
    return format_html_join("", "{}<wbr>", ((piece,) for piece in _PIECES.split(text)))


def prose(value: object) -> SafeString | str:
    """A text on a page of its own, its line breaks kept, secrets masked."""
    if value in (None, ""):
        return EMPTY
    text = redact(visible(cut(str(value), TEXT_LIMIT)))
    return format_html('<span class="dj-text">{}</span>', text)


def document(text: str | None) -> SafeString | str:
    """A JSON document, indented, the values of secret-looking keys masked, cut to size."""
    if text is None:
        return EMPTY
    if len(text) > PARSE_LIMIT:
        return format_html("<em>Too large to show: over {} characters.</em>", f"{PARSE_LIMIT:,}")
    try:
        shown = json.dumps(masked(json.loads(text)), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return format_html("<em>Cannot be shown: {} characters, no plain JSON.</em>", len(text))
    return format_html('<pre class="dj-document">{}</pre>', visible(cut(shown, TEXT_LIMIT)))


def moment(value: datetime | None) -> SafeString | str:
    """A time in the viewer's time zone, with that zone's offset; its name when pointed at."""
    if value is None:
        return EMPTY
    local = timezone.localtime(value) if timezone.is_aware(value) else value
    offset = f"{local:%z}"
    zone = f"{offset[:3]}:{offset[3:5]}" if offset.strip("+0") else "UTC"
    return format_html(
        '<time class="dj-time" datetime="{}" title="{}">{} {}</time>',
        value.isoformat(),
        timezone.get_current_timezone_name(),
        f"{local:%Y-%m-%d %H:%M:%S}",
        zone,
    )


def span(length: timedelta) -> str:
    """How long ago, ``"3 h 5 min"``; what is still to come reads ``"in 3 h 5 min"``."""
    seconds = int(length.total_seconds())
    ahead = "in " if seconds < 0 else ""
    seconds = abs(seconds)
    for size, name, smaller, smaller_name in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if seconds >= size:
            rest = seconds % size // smaller
            return f"{ahead}{seconds // size} {name}" + (f" {rest} {smaller_name}" if rest else "")
    return f"{ahead}{seconds} s"


def column(
    field: str, show: Callable[[Any], Any] = cell, description: str = ""
) -> Callable[[Any, Any], Any]:
    """A method of a ``ModelAdmin`` that shows ``field`` of a row by ``show``."""

    def shown(_admin: Any, row: Any) -> Any:
        return show(getattr(row, field))

    shown.short_description = description or field.replace("_", " ")  # type: ignore[attr-defined]
    return shown
