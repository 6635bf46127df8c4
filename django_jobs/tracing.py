"""The W3C trace context of whoever enqueues, where OpenTelemetry is installed."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec

# https://www.w3.org/TR/trace-context/#traceparent-header: version 00, ids that are not all zero.
_HEADER = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def current_traceparent() -> str:
    """The current span's ``traceparent`` header, or ``""`` outside a span."""
    if not _INSTALLED:
        return ""
    carrier: dict[str, str] = {}
    import_module("opentelemetry.propagate").inject(carrier)
    header = carrier.get("traceparent", "")
    return header if _HEADER.fullmatch(header) else ""


_INSTALLED = find_spec("opentelemetry") is not None
