"""Whether a backfill may run here and now."""

from __future__ import annotations

from django.db import connections
from django.db.migrations.recorder import MigrationRecorder

from django_jobs import conf
from django_jobs.backfills import Backfill as Declaration
from django_jobs.backfills import backfills
from django_jobs.errors import AtomicNeedsOneDatabase, BackfillRefused
from django_jobs.models import Backfill
from django_jobs.states import PassState


def check_environment(declared: Declaration) -> None:
    """Raises ``BackfillRefused`` outside the environments that the backfill is for."""
    wanted = declared.declared.environments
    if wanted and conf.current().environment not in wanted:
        raise BackfillRefused(
            "environment",
            f"{declared.name} is for {', '.join(wanted)}, and DJANGO_JOBS['ENVIRONMENT'] is "
            f"{conf.current().environment!r} here.",
        )


def check_gate(declared: Declaration, tenant: str, *, force: bool = False) -> None:
    """Raises ``BackfillRefused`` while something stands in the way. Nothing is written.

    In this order: environment, migrations, other backfills, and that it is completed already,
    which is all that ``force`` overrides. ``DeclarationError`` for a source that cannot be paged.
    """
    check_environment(declared)
    keyset = declared.keyset(tenant)
    jobs = conf.current().database
    if declared.declared.atomic and keyset.alias != jobs:
        raise AtomicNeedsOneDatabase(declared.name, keyset.alias, jobs)
    check_requires(declared, keyset.alias)
    for name in declared.declared.depends_on:
        if not all(completed(name, of) for of in _tenants(name)):
            raise BackfillRefused(
                "depends_on", f"{declared.name} comes after {name}, which is not completed."
            )
    done = completed(declared.name, tenant)
    if done is not None and not force:
        raise BackfillRefused(
            "applied",
            f"{declared.name} is completed already (pass {done.pk}). Force it to sweep again.",
        )


def check_requires(declared: Declaration, alias: str) -> None:
    """Raises ``BackfillRefused`` for a migration that is not applied on ``alias``."""
    wanted = declared.declared.requires
    if not wanted:
        return
    applied = MigrationRecorder(connections[alias]).applied_migrations()
    for migration in wanted:
        # "0042" stands for the one migration whose name begins so.
        if not any(a == migration[0] and n.startswith(migration[1]) for a, n in applied):
            raise BackfillRefused(
                "requires",
                f"{declared.name} requires migration {'.'.join(migration)}, which is not applied "
                f"on database {alias!r}. Run migrate first.",
            )


def _tenants(name: str) -> list[str]:
    """The tenants whose passes there are; of a backfill that is no longer declared, none."""
    declared = backfills().get(name)
    return [""] if declared is None else declared.tenants()


def completed(name: str, tenant: str) -> Backfill | None:
    """The newest completed pass."""
    passes = Backfill.objects.filter(name=name, tenant=tenant, state=PassState.COMPLETED)
    found: Backfill | None = passes.order_by("-finished_at").first()
    return found
