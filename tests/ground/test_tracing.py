"""The trace context of whoever enqueues."""

from __future__ import annotations

import subprocess
import sys

from opentelemetry import trace

from django_jobs.tracing import current_traceparent

SPAN = trace.NonRecordingSpan(
    trace.SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=trace.TraceFlags(1))
)


def test_inside_a_span_it_is_the_span_s_and_outside_there_is_none() -> None:
    assert current_traceparent() == ""
    with trace.use_span(SPAN):
        assert current_traceparent() == f"00-{0xABC:032x}-{0xDEF:016x}-01"
    assert current_traceparent() == ""


def test_a_process_that_has_no_spans_never_loads_opentelemetry() -> None:
    asked = (
        "import sys\n"
        "from django_jobs.tracing import current_traceparent\n"
        "assert current_traceparent() == ''\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    ran = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True)
    assert (ran.stdout.strip(), ran.stderr) == ("[]", "")
