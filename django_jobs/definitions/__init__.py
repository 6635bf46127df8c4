"""Jobs as they are declared: ``@job``, the registry of all of them, and calls to be enqueued."""

from __future__ import annotations

from django_jobs.definitions.calls import CallOptions, Enqueued, OnConflict, Request
from django_jobs.definitions.declared import (
    Call,
    Definition,
    bind,
    request_of,
    require_one_database,
)
from django_jobs.definitions.declaring import job
from django_jobs.definitions.discovery import allow, autodiscover, check_discoverable
from django_jobs.definitions.registered import coroutines, definition, registry
from django_jobs.keys import PER_CALL

__all__ = [
    "PER_CALL",
    "Call",
    "CallOptions",
    "Definition",
    "Enqueued",
    "OnConflict",
    "Request",
    "allow",
    "autodiscover",
    "bind",
    "check_discoverable",
    "coroutines",
    "definition",
    "job",
    "registry",
    "request_of",
    "require_one_database",
]
