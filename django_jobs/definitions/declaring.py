"""The decorator. Whatever can be known to be wrong is refused when the module loads."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar

from django.conf import settings as django_settings
from django.db import DEFAULT_DB_ALIAS

from django_jobs import conf
from django_jobs.definitions.calls import PRIORITIES, is_priority
from django_jobs.definitions.declared import (
    Declared,
    Definition,
    SupersedeRunning,
    check_tenant_declared,
)
from django_jobs.definitions.registered import register
from django_jobs.durations import seconds
from django_jobs.errors import DeclarationError, KeyRefused
from django_jobs.keys import (
    MAX_KEY_BYTES,
    MAX_NAME,
    MAX_QUEUE,
    MAX_TENANT,
    PER_CALL,
    Derivation,
    PerCall,
    Spec,
    derivation,
    plain_text,
)
from django_jobs.retries import Retry

MAX_VERSION = 50
"""Characters of a version."""

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Given:
    """What stands between the parentheses of one ``@job``, unchecked."""

    key: Any
    tenant: Any
    lane: Any
    supersede_running: Any
    queue: Any
    priority: Any
    retry: Any
    timeout: Any
    max_payload: Any
    name: Any
    atomic: Any
    version: Any
    deadline: Any


def job(
    misplaced: None = None,
    /,
    *,
    idempotency_key: Spec | PerCall | None = None,
    tenant: Spec | None = None,
    lane: Spec | None = None,
    supersede_running: SupersedeRunning = "now",
    queue: str = "default",
    priority: int = 0,
    retry: Retry = Retry(),  # noqa: B008 - frozen
    timeout: float | timedelta | None = None,
    max_payload: int | None = None,
    name: str | None = None,
    atomic: bool | str = False,
    version: str | Sequence[str] = "",
    deadline: float | timedelta | None = None,
) -> Callable[[Callable[P, R]], Definition[P, R]]:
    """Makes a function a durable job. It stays a function: calling it runs its body.

    - ``idempotency_key`` (required, except with ``lane``): which calls are the same work. While a
      job with the same key is live, running included, further calls are answered with it. A
      template over argument names (``"charge:{order_id}"``), a callable that takes arguments by
      name, or ``PER_CALL``.
    - ``tenant``: whose work it is, in the same forms; keys of two tenants never meet.
    - ``lane``: newer calls supersede older ones of the same lane, waiting or running; in the same
      forms, and a callable may return ``None``: this call is in no lane. Every call is then work
      of its own (``PER_CALL``) unless ``idempotency_key`` names the event it stands for.
    - ``supersede_running``: ``"now"`` ends an older run when a newer call is published;
      ``"on_start"`` lets it go on until the newer one is about to run.
    - ``queue``, ``priority`` (smaller runs first), ``retry``.
    - ``timeout``: of each attempt, in seconds or as ``timedelta``; ``deadline``: of the whole job,
      sleeps and retries included, from its first start.
    - ``max_payload``: bytes of the arguments as JSON; the setting ``MAX_PAYLOAD`` by default.
    - ``name``: what rows carry; by default the dotted path. Give it before you move the function.
    - ``atomic``: body and success are one transaction, so that what it writes happens exactly once;
      ``True`` or an alias: of the database that holds the jobs.
    - ``version``: stored with its steps. A run of another one is parked; ``("2", "")`` takes both.

    Raises ``DeclarationError``, always with the edit that mends it.
    """
    _refuse_bare(misplaced)
    where = (queue, priority, retry, timeout, max_payload, name, atomic, version, deadline)
    given = Given(idempotency_key, tenant, lane, supersede_running, *where)

    def decorate(fn: Callable[P, R]) -> Definition[P, R]:
        return _declare(fn, given)

    return decorate


def _refuse_bare(fn: Any) -> None:
    if fn is not None:
        raise DeclarationError(
            f"{_path(fn)}: @job needs parentheses and a key. Write "
            f'@job(idempotency_key="...:{{argument}}") or @job(idempotency_key=PER_CALL).'
        )


def _declare(fn: Callable[P, R], given: Given) -> Definition[P, R]:
    _check_function(fn)
    path = _path(fn)
    names = tuple(inspect.signature(fn).parameters)
    lane = _lane(given.lane, names, path)
    made = Definition(
        fn,
        Declared(
            name=_name(fn, given.name),
            queue=_text(given.queue, f"{path}: queue", MAX_QUEUE),
            priority=_priority(given.priority, path),
            retry=_retry(given.retry, path),
            timeout=_timeout(given.timeout, path),
            deadline=_timeout(given.deadline, path, "deadline"),
            max_payload=_max_payload(given.max_payload, path),
            key=_key(given.key, lane, names, path),
            tenant=None
            if given.tenant is None
            else derivation(given.tenant, names, job=path, field="tenant", chars=MAX_TENANT),
            lane=lane,
            supersede_running=_supersede_running(given.supersede_running, lane, path),
            atomic=_atomic(fn, given.atomic),
            versions=_versions(fn, given.version),
        ),
    )
    if django_settings.configured and conf.fault() is None:
        check_tenant_declared(made.name, made.tenant)
    register(made)
    return made


def _lane(spec: Any, names: tuple[str, ...], path: str) -> Derivation | None:
    if spec is None:
        return None
    return derivation(spec, names, job=path, field="lane", octets=MAX_KEY_BYTES)


def _supersede_running(value: Any, lane: Derivation | None, path: str) -> SupersedeRunning:
    if value not in ("now", "on_start"):
        raise DeclarationError(f'{path}: supersede_running={value!r}; write "now" or "on_start".')
    if lane is None and value != "now":
        raise DeclarationError(
            f"{path}: supersede_running={value!r} means nothing without a lane. Add "
            'lane="{an_argument}", or leave it out.'
        )
    checked: SupersedeRunning = value
    return checked


def _key(
    spec: Any, lane: Derivation | None, names: tuple[str, ...], path: str
) -> Derivation | None:
    if spec is PER_CALL or (spec is None and lane is not None):
        return None
    if spec is None:
        example = f"{path.rpartition('.')[2]}:{{{names[0]}}}" if names else "nightly"
        raise DeclarationError(
            f"{path}: which calls are the same work? Write idempotency_key={example!r}, or "
            f"idempotency_key=PER_CALL if every call is work of its own."
        )
    key = derivation(spec, names, job=path, field="idempotency_key", octets=MAX_KEY_BYTES)
    if lane is not None and key.arguments <= lane.arguments:
        raise DeclarationError(
            f"{path}: the key is made of the lane's own arguments, so the newest call would be "
            "answered with the older one that it should supersede. Drop idempotency_key, or name "
            "the event with an argument that the lane does not use."
        )
    return key


def _check_function(fn: Any) -> None:
    if not inspect.isfunction(fn):
        raise DeclarationError(f"{_path(fn)}: @job decorates a plain function, not {fn!r}.")
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise DeclarationError(f"{_path(fn)}: a generator runs nothing when called. Remove yield.")
    names = tuple(inspect.signature(fn).parameters)
    if "self" in names or names[:1] == ("cls",):
        raise DeclarationError(
            f"{_path(fn)}: a method cannot be a job, since its object cannot be stored. Move it "
            f"to module level, without self."
        )


def _name(fn: Any, given: str | None) -> str:
    if given is not None:
        return _text(given, f"{_path(fn)}: name", MAX_NAME)
    path = _path(fn)
    if "<" in path:
        raise DeclarationError(
            f"{path} cannot be found again by its path. Move it to module level, or give it name=."
        )
    return _text(path, f"{path}: the name", MAX_NAME)


def _text(value: object, what: str, limit: int) -> str:
    try:
        return plain_text(value, what, chars=limit)
    except KeyRefused as error:
        raise DeclarationError(f"{error} Write a short plain text.") from error


def _priority(value: int, path: str) -> int:
    if not is_priority(value):
        raise DeclarationError(
            f"{path}: priority={value!r}; write a whole number from {PRIORITIES[0]:,} to "
            f"{PRIORITIES[-1]:,}."
        )
    return value


def _retry(value: object, path: str) -> Retry:
    if not isinstance(value, Retry):
        raise DeclarationError(f"{path}: retry={value!r}; write Retry(max_attempts=...).")
    return value


def _timeout(value: float | timedelta | None, path: str, name: str = "timeout") -> float | None:
    length = seconds(value)
    if value is not None and not length:
        raise DeclarationError(f"{path}: {name}={value!r}; write finite seconds above 0, or None.")
    return length


def _versions(fn: Any, given: Any) -> tuple[str, ...]:
    versions = (given,) if isinstance(given, str) else tuple(given)
    plain = all(isinstance(v, str) and len(v) <= MAX_VERSION and v.isprintable() for v in versions)
    if not versions or not plain:
        raise DeclarationError(
            f'{_path(fn)}: version={given!r}; write a short text, or several: version=("2", "1").'
        )
    return versions


def _atomic(fn: Any, value: bool | str) -> str | None:
    if value is False:
        return None
    alias = DEFAULT_DB_ALIAS if value is True else value
    if not isinstance(alias, str) or not alias:
        raise DeclarationError(f"{_path(fn)}: atomic={value!r}; write True or a database's alias.")
    if inspect.iscoroutinefunction(fn):
        raise DeclarationError(
            f"{_path(fn)}: an async body has no transactions, so atomic= cannot hold. Write a "
            "plain def, or put the writes into a function for await sync_to_async(fn)()."
        )
    return alias


def _max_payload(value: int | None, path: str) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if value is not None and not (whole and value > 0):
        raise DeclarationError(f"{path}: max_payload={value!r}; write bytes above 0, or None.")
    return value


def _path(fn: Any) -> str:
    return f"{getattr(fn, '__module__', '?')}.{getattr(fn, '__qualname__', repr(fn))}"
