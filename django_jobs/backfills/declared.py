"""A declared backfill, and the page that its body is given."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, overload
from uuid import UUID

from django.db.models import QuerySet

from django_jobs.backfills.checksum import checksum
from django_jobs.backfills.keyset import Keyset
from django_jobs.definitions import Definition
from django_jobs.errors import BackfillNotFound, KeyRefused
from django_jobs.keys import MAX_TENANT, plain_text

RatePer = Literal["pages", "rows"]


class All(enum.Enum):
    """The type of ``ALL``."""

    ALL = "ALL"

    def __repr__(self) -> str:
        return "ALL"


ALL: Final = All.ALL
"""One pass over the rows of every tenant."""


class Page(Sequence[Any]):
    """The rows of one page in their order, as instances of the source's model.

    They are read when they are first asked for: a body that only calls ``queryset.update()`` never
    makes an instance. ``pks`` are their primary keys, ``tenant`` is whose rows they are (``""``
    without tenants).
    """

    def __init__(self, keyset: Keyset, pks: Sequence[Any], tenant: str) -> None:
        self._keyset = keyset
        self.pks = pks
        self.tenant = tenant

    @cached_property
    def rows(self) -> list[Any]:
        """The instances: of all ``pks``, but for rows that have left the source meanwhile."""
        return list(self._keyset.ordered(self.queryset))

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        """One row, or some."""
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)

    def __repr__(self) -> str:
        return f"<page of {len(self.pks)} {self._keyset.model._meta.label}>"

    @property
    def queryset(self) -> QuerySet[Any]:
        """These rows as a queryset, for ``update()``: those that still fit the source."""
        return self._keyset.among(self.pks)

    @property
    def using(self) -> str:
        """The alias of the database that the rows are in."""
        return self._keyset.alias


@dataclass(frozen=True, slots=True)
class Health:
    """What must hold on PostgreSQL before each page. ``None`` does not look.

    ``replica_lag``: seconds that the slowest replica is behind. ``lock_waits``: sessions that wait
    for a lock. ``transaction_age``: seconds that the oldest transaction is open.
    """

    replica_lag: float | None = 10.0
    lock_waits: int | None = 20
    transaction_age: float | None = None


@dataclass(frozen=True, slots=True)
class Declared:
    """The checked values of one ``@backfill``. Rates are per second, ``target`` is in seconds."""

    source: Callable[..., QuerySet[Any]]
    order_by: tuple[str, ...]
    batch: int
    max_batch: int
    target: float | None
    rate: float | None
    rate_per: RatePer
    tenants: Callable[[], Iterable[str]] | All | None
    requires: tuple[tuple[str, str], ...]
    depends_on: tuple[str, ...]
    environments: tuple[str, ...]
    count: Callable[..., object] | None
    atomic: bool
    skip: int
    shards: int
    parallel: int
    health: Health
    throttle: Callable[[], object] | None


class Backfill:
    """A paced, resumable change of many rows. Calling it runs its body on one page, here and now.

    ``job`` is the job that works on a pass of it; ``handle`` the body; ``declared`` what stands
    between the parentheses of the decorator.
    """

    def __init__(self, name: str, handle: Callable[[Page], object], declared: Declared) -> None:
        self.name = name
        self.handle = handle
        self.declared = declared
        self.checksum = checksum(declared.source, handle)
        self.job: Definition[Any, Any]

    def __call__(self, page: Page) -> object:
        """Runs the body on ``page`` in this process; no ledger is written."""
        return self.handle(page)

    def __repr__(self) -> str:
        return f"<backfill {self.name}>"

    @property
    def is_tenanted(self) -> bool:
        """Whether there is one pass for each tenant."""
        return callable(self.declared.tenants)

    def tenants(self) -> list[str]:
        """Whose passes there are: ``[""]`` where one pass takes the rows of all."""
        if not callable(self.declared.tenants):
            return [""]
        named = dict.fromkeys(self.declared.tenants())
        return [plain_text(tenant, f"{self.name}: a tenant", chars=MAX_TENANT) for tenant in named]

    def keyset(self, tenant: str = "") -> Keyset:
        """The source as it is now. Raises ``DeclarationError`` when it cannot be paged."""
        source = self.declared.source
        self._require_tenant(tenant)
        rows = source(tenant) if self.is_tenanted else source()
        return Keyset.of(self.name, rows, self.declared.order_by)

    def remaining(self, tenant: str = "") -> object:
        """What ``count`` says, unchecked; ``None`` when none is declared."""
        count = self.declared.count
        if count is None:
            return None
        self._require_tenant(tenant)
        return count(tenant) if self.is_tenanted else count()

    def _require_tenant(self, tenant: str) -> None:
        if bool(tenant) is not self.is_tenanted:
            of = "names none" if self.is_tenanted else f"names {tenant!r}"
            takes = "one pass for each tenant" if self.is_tenanted else "one pass, without tenant"
            raise KeyRefused(f"{self.name} has {takes}, and this call {of}.")


_backfills: dict[str, Backfill] = {}
_work: Callable[[Backfill, UUID], object] | None = None


def bind(work: Callable[[Backfill, UUID], object]) -> None:
    """Says what the job of a backfill runs: ``work(backfill, pass_id)``, some layers above."""
    global _work
    _work = work


def work(backfill: Backfill, pass_id: UUID) -> object:
    """The body of a backfill's job."""
    assert _work is not None, '"django_jobs" is not in INSTALLED_APPS'
    return _work(backfill, pass_id)


def register(backfill: Backfill) -> None:
    """Adds a backfill; its job has claimed the name already."""
    _backfills[backfill.name] = backfill


def backfills() -> dict[str, Backfill]:
    """Every backfill that this process has declared, sorted by name."""
    return dict(sorted(_backfills.items()))


def named(name: str) -> Backfill:
    """The backfill of this name; raises ``BackfillNotFound``."""
    if name not in _backfills:
        known = ", ".join(sorted(_backfills)) or "none"
        raise BackfillNotFound(f"No backfill is called {name!r}. Declared: {known}.")
    return _backfills[name]
