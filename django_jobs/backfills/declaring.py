"""The decorator. Whatever can be known to be wrong is refused when the module loads."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from django_jobs.backfills.declared import (
    ALL,
    All,
    Backfill,
    Declared,
    Health,
    Page,
    RatePer,
    register,
    work,
)
from django_jobs.definitions import PER_CALL, job
from django_jobs.errors import DeclarationError
from django_jobs.retries import Retry

Handle = Callable[[Page], object]


def backfill(
    *,
    source: Callable[..., QuerySet[Any]],
    order_by: Sequence[str] = (),
    batch: int = 1_000,
    target_seconds: float | None = None,
    max_batch: int | None = None,
    rate: float | None = 5.0,
    rate_per: RatePer = "pages",
    tenant: Callable[[], Iterable[str]] | All | None = None,
    requires: Sequence[tuple[str, str]] = (),
    depends_on: Sequence[str] = (),
    environments: Sequence[str] = (),
    count: Callable[..., object] | None = None,
    atomic: bool = True,
    skip: int = 0,
    shards: int = 1,
    parallel: int | None = None,
    health: Health = Health(),  # noqa: B008 - frozen
    throttle: Callable[[], object] | None = None,
    queue: str = "default",
    retry: Retry = Retry(max_attempts=5),  # noqa: B008 - frozen
    timeout: float | timedelta | None = None,
    name: str | None = None,
) -> Callable[[Handle], Backfill]:
    """Makes a function that changes one page of rows a backfill over all of them.

    - ``source``: returns the rows that need the change, a queryset. It is asked anew for each
      page, so rows may leave it as they are changed.
    - ``order_by``: columns of the model; the primary key by default, and added where the columns
      are not unique. A minus sign for descending.
    - ``batch``: rows of a page. With ``target_seconds`` pages grow and shrink until one takes so
      long, up to ``max_batch`` rows (ten times ``batch`` by default).
    - ``rate``: pages, or rows with ``rate_per="rows"``, a second at most; ``None``: no limit.
    - ``tenant``: a callable that lists tenants makes one pass for each, and ``source`` and
      ``count`` then take the tenant; ``ALL`` is one pass over the rows of all.
    - ``requires``: migrations that must be applied. ``depends_on``: backfills that must be
      completed. ``environments``: values of the setting ``ENVIRONMENT`` to run in; empty: all.
    - ``count``: how many rows still need the change. A pass is complete only once this is 0.
    - ``atomic``: a page is one transaction with the record that it is done. ``False``: the body
      runs outside, and a page may be handed over again after a crash.
    - ``skip``: rows that may fail. Each is listed and passed over; 0: the first error stops.
    - ``shards``: parts of an integer or UUID key, of which ``parallel`` (all) run at a time.
    - ``health``, ``throttle``: what is measured before a page. ``throttle`` returns a text that
      says why to wait, or anything false.
    - ``queue``, ``retry``, ``timeout``, ``name``: as for ``@job``.

    Raises ``DeclarationError``, always with the edit that mends it.
    """
    values = {key: value for key, value in locals().items() if key not in _OF_THE_JOB}
    of_the_job = {"queue": queue, "retry": retry, "timeout": timeout}

    def decorate(handle: Handle) -> Backfill:
        return _declare(handle, name, values, of_the_job)

    return decorate


_OF_THE_JOB = ("queue", "retry", "timeout", "name")


def _declare(
    handle: Handle, name: str | None, values: dict[str, Any], of_the_job: dict[str, Any]
) -> Backfill:
    path = f"{getattr(handle, '__module__', '?')}.{getattr(handle, '__qualname__', handle)}"
    if not inspect.isfunction(handle) or inspect.iscoroutinefunction(handle):
        raise DeclarationError(f"{path}: @backfill decorates a plain function: def fill(page): ...")
    made = Backfill(name or path, handle, _declared(path, values))
    tenanted = made.is_tenanted

    def body(pass_id: UUID, tenant: str = "") -> Any:
        return work(made, pass_id)

    body.__module__, body.__qualname__ = handle.__module__, handle.__qualname__
    body.__name__, body.__doc__ = handle.__name__, handle.__doc__
    # One constant tenant for ALL: a project may require that every job names one.
    spec = "{tenant}" if tenanted else "*" if made.declared.tenants is ALL else None
    made.job = job(idempotency_key=PER_CALL, tenant=spec, name=name, **of_the_job)(body)
    made.name = made.job.name
    register(made)
    return made


def _declared(path: str, values: dict[str, Any]) -> Declared:
    for what in ("source", "count", "throttle"):
        if not callable(values[what]) and (what == "source" or values[what] is not None):
            raise _wrong(path, what, values[what], "a callable, such as lambda: Model.objects...")
    if values["tenant"] not in (None, ALL) and not callable(values["tenant"]):
        raise _wrong(path, "tenant", values["tenant"], "a callable that lists tenants, or ALL")
    if values["rate_per"] not in ("pages", "rows"):
        raise _wrong(path, "rate_per", values["rate_per"], '"pages" or "rows"')
    if not isinstance(values["health"], Health):
        raise _wrong(path, "health", values["health"], "Health(...)")
    batch = _whole(path, "batch", values["batch"], 1)
    shards = _whole(path, "shards", values["shards"], 1)
    order_by = _texts(path, "order_by", values["order_by"])
    if shards > 1 and len(order_by) > 1:
        raise _wrong(path, "shards", shards, "1, or order by one integer or UUID column")
    return Declared(
        source=values["source"],
        order_by=order_by,
        batch=batch,
        max_batch=_whole(path, "max_batch", values["max_batch"] or 10 * batch, batch),
        target=_number(path, "target_seconds", values["target_seconds"]),
        rate=_number(path, "rate", values["rate"]),
        rate_per=values["rate_per"],
        tenants=values["tenant"],
        requires=_migrations(path, values["requires"]),
        depends_on=_texts(path, "depends_on", values["depends_on"]),
        environments=_texts(path, "environments", values["environments"]),
        count=values["count"],
        atomic=bool(values["atomic"]),
        skip=_whole(path, "skip", values["skip"], 0),
        shards=shards,
        parallel=_whole(path, "parallel", values["parallel"] or shards, 1),
        health=values["health"],
        throttle=values["throttle"],
    )


def is_rate(value: object) -> bool:
    """Whether ``value`` can be a rate: finite and above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and value > 0


def _number(path: str, what: str, value: Any) -> float | None:
    if value is None or is_rate(value):
        return None if value is None else float(value)
    raise _wrong(path, what, value, "a finite number above 0, or None")


def _whole(path: str, what: str, value: Any, least: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value
    raise _wrong(path, what, value, f"a whole number, at least {least}")


def _texts(path: str, what: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, list | tuple) and all(isinstance(v, str) and v for v in value):
        return tuple(value)
    raise _wrong(path, what, value, "a list of names")


def _migrations(path: str, value: Any) -> tuple[tuple[str, str], ...]:
    pairs = value if isinstance(value, list | tuple) else [None]
    if all(isinstance(p, tuple) and len(p) == 2 and all(map(bool, p)) for p in pairs):
        return tuple(pairs)
    raise _wrong(path, "requires", value, '[("app", "0042_name"), ...]')


def _wrong(path: str, what: str, value: object, expected: str) -> DeclarationError:
    return DeclarationError(f"{path}: {what}={value!r}; write {expected}.")
