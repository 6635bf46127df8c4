"""A declared job: an ordinary function that can also be enqueued."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, Literal, ParamSpec, TypeVar

from asgiref.sync import sync_to_async

from django_jobs import conf
from django_jobs.definitions.calls import CallOptions, Enqueued, OnConflict, Request
from django_jobs.definitions.discovery import check_discoverable
from django_jobs.errors import (
    AtomicNeedsOneDatabase,
    DeclarationError,
    EnqueueError,
    KeyRefused,
)
from django_jobs.keys import Derivation
from django_jobs.payloads import Arguments, Result
from django_jobs.retries import Retry

P = ParamSpec("P")
R = TypeVar("R")

SupersedeRunning = Literal["now", "on_start"]
"""When a newer job of a lane ends an older one that runs."""

_enqueue: Callable[..., Enqueued] | None = None


def bind(enqueue: Callable[..., Enqueued]) -> None:
    """Says what ``job.enqueue(...)`` calls: ``enqueue(job, *args, **kwargs)``.

    Operations are a layer above declarations, so they announce themselves here.
    """
    global _enqueue
    _enqueue = enqueue


@dataclass(frozen=True, slots=True)
class Declared:
    """The checked values of one ``@job``. ``timeout`` is in seconds, ``max_payload`` in bytes."""

    name: str
    queue: str
    priority: int
    retry: Retry
    timeout: float | None
    max_payload: int | None
    key: Derivation | None
    tenant: Derivation | None
    lane: Derivation | None
    supersede_running: SupersedeRunning
    atomic: str | None
    versions: tuple[str, ...]
    deadline: float | None


class Definition(Generic[P, R]):
    """A job. Calling it runs its body here and now, as if it were not decorated.

    ``fn`` is the body; ``arguments`` and ``result`` say what it takes and returns; ``options``
    are those of ``using()``. ``key`` is ``None`` for ``PER_CALL``, ``tenant`` for no tenant,
    ``lane`` for a job without lanes. ``atomic`` is the alias in whose transaction body and success
    are stored, or ``None``. ``versions`` are those of its code: this one, then the older ones that
    it understands.
    """

    def __init__(self, fn: Callable[P, R], declared: Declared) -> None:
        self.fn = fn
        self.is_async = inspect.iscoroutinefunction(fn)
        self.arguments = Arguments.of(fn)
        self.result = Result.of(fn)
        self.options = CallOptions()
        self.name = declared.name
        self.queue = declared.queue
        self.priority = declared.priority
        self.retry = declared.retry
        self.timeout = declared.timeout
        self.max_payload = declared.max_payload
        self.key = declared.key
        self.tenant = declared.tenant
        self.lane = declared.lane
        self.supersede_running = declared.supersede_running
        self.atomic = declared.atomic
        self.versions = declared.versions
        self.deadline = declared.deadline
        self.module = fn.__module__
        # Attributes that the function carries stay its own: one may be called like ours.
        functools.update_wrapper(self, fn, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs the body in this process; nothing is enqueued."""
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<job {self.name}>"

    def using(
        self,
        *,
        queue: str | None = None,
        delay: float | timedelta | None = None,
        run_at: datetime | None = None,
        tenant: str | None = None,
        priority: int | None = None,
        on_conflict: OnConflict | None = None,
        database: str | None = None,
        enqueued_by: str | None = None,
        bypass: bool | None = None,
    ) -> Definition[P, R]:
        """This job with other options for the calls made through the answer.

        - ``delay`` (seconds or ``timedelta``) or ``run_at`` (an aware datetime): when it is due.
        - ``tenant``: required where none is declared and one is wanted; elsewhere it must be equal
          to the one that follows from the arguments.
        - ``on_conflict``: ``"dedupe"`` returns the live job with the same key, ``"error"`` raises
          ``DuplicateJob``.
        - ``database``: the alias in whose transaction it is staged.
        - ``enqueued_by``: who asked, for the record only.
        - ``bypass``: become a job at once even if the queue is over its limit (``MAX_READY``).

        Raises ``KeyRefused`` or ``EnqueueError`` for values that cannot work.
        """
        changed = copy.copy(self)
        changed.options = self.options.replaced(
            queue=queue,
            delay=delay,
            run_at=run_at,
            tenant=tenant,
            priority=priority,
            on_conflict=on_conflict,
            database=database,
            enqueued_by=enqueued_by,
            bypass=bypass,
        )
        return changed

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call:
        """This call as a value, for ``enqueue_many``."""
        return Call(self, args, kwargs)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """The same as ``enqueue(job, ...)``: raises ``EnqueueError`` before anything is written."""
        return _bound()(self, *args, **kwargs)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """``enqueue`` for async code."""
        return await sync_to_async(_bound())(self, *args, **kwargs)


@dataclass(frozen=True, slots=True)
class Call:
    """A job with arguments that has not been enqueued yet."""

    definition: Definition[Any, Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def request(self) -> Request:
        """The call, checked; raises ``EnqueueError`` as ``enqueue`` does."""
        return request_of(self.definition, self.args, self.kwargs)


def request_of(
    definition: Definition[Any, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Request:
    """Everything that the database needs to know of a call. Nothing is written.

    Key and tenant are derived from the arguments as a worker will read them. Raises
    ``PayloadError``, ``KeyRefused`` or ``NotDiscoverable``.
    """
    check_discoverable(definition)
    require_one_database(definition)
    settings, options = conf.current(), definition.options
    bound = definition.arguments.bind(args, kwargs)
    payload, arguments = definition.arguments.encode(
        bound, definition.max_payload or settings.max_payload
    )
    delay = options.delay.total_seconds() if isinstance(options.delay, timedelta) else options.delay
    return Request(
        name=definition.name,
        queue=options.queue or definition.queue,
        priority=definition.priority if options.priority is None else options.priority,
        tenant=_tenant_of(definition, arguments),
        idempotency_key=definition.key(arguments) if definition.key else None,
        lane=definition.lane.or_none(arguments) if definition.lane else None,
        payload=payload,
        run_at=options.run_at,
        delay=delay,
        max_attempts=definition.retry.max_attempts,
        timeout=definition.timeout,
        on_conflict=options.on_conflict or "dedupe",
        database=options.database,
        enqueued_by=options.enqueued_by or "",
        bypass=bool(options.bypass),
    )


def require_one_database(definition: Definition[Any, Any]) -> None:
    """Raises ``AtomicNeedsOneDatabase`` for ``atomic=`` on an alias that does not hold the jobs."""
    jobs = conf.current().database
    if definition.atomic not in (None, jobs):
        raise AtomicNeedsOneDatabase(definition.name, definition.atomic, jobs)


def check_tenant_declared(name: str, tenant: object) -> None:
    """Raises ``DeclarationError`` when the project requires a tenant and this job has none."""
    if tenant is None and conf.current().require_tenant:
        raise DeclarationError(
            f"{name}: DJANGO_JOBS['REQUIRE_TENANT'] is on and the job declares no tenant. Add "
            f'tenant="{{an_argument}}", or a constant such as tenant="system".'
        )


def _tenant_of(definition: Definition[Any, Any], arguments: Mapping[str, Any]) -> str:
    asked = definition.options.tenant
    if definition.tenant is None:
        check_tenant_declared(definition.name, definition.tenant)
        return asked or ""
    derived = definition.tenant(arguments)
    if asked is not None and asked != derived:
        raise KeyRefused(
            f"{definition.name}: the arguments belong to tenant {derived!r}, but "
            f"using(tenant={asked!r}) was asked for. Leave it out, or correct the arguments."
        )
    return derived


def _bound() -> Callable[..., Enqueued]:
    if _enqueue is None:
        raise EnqueueError(
            'Jobs cannot be enqueued yet: "django_jobs" is not in INSTALLED_APPS, or '
            "django.setup() has not run."
        )
    return _enqueue
