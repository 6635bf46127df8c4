"""The W3C trace context of whoever enqueues, where OpenTelemetry is installed."""

from __future__ import annotations

import re
import sys
from importlib import import_module

# https://www.w3.org/TR/trace-context/#traceparent-header: version 00, ids that are not all zero.
_HEADER = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def current_traceparent() -> str:
    """The current span's ``traceparent`` header, or ``""`` outside a span."""
    # Who has a span has imported this; where nobody has, each call would pay for the search.
    if "opentelemetry.trace" not in sys.modules:
        return ""
    carrier: dict[str, str] = {}
    import_module("opentelemetry.propagate").inject(carrier)
    header = carrier.get("traceparent", "")
    return header if _HEADER.fullmatch(header) else ""
