"""Arguments, results and progress as JSON text that comes back as it was given.

The function's own annotations say which types a payload has. Whatever JSON would change or the
database would refuse is refused here, before any statement runs.
"""

from __future__ import annotations

from django_jobs.payloads.arguments import Arguments
from django_jobs.payloads.faults import MAX_DEPTH
from django_jobs.payloads.values import Result, decode_value, encode_value

__all__ = ["MAX_DEPTH", "Arguments", "Result", "decode_value", "encode_value"]
