"""Order between schema changes and backfills."""

from __future__ import annotations

from typing import Any

from django.db.migrations.operations.base import Operation

from django_jobs import conf
from django_jobs.errors import BackfillRefused
from django_jobs.models import Backfill
from django_jobs.states import PassState


class RequireBackfill(Operation):
    """Stops a migration that needs the result of a backfill which is not completed.

    ::

        operations = [
            RequireBackfill("search.count_lines", model="search.Document"),
            migrations.AlterField("document", "line_count", models.IntegerField()),
        ]

    ``model``: while its table has no row there is nothing to backfill, so that a new database
    (a developer's, a test's) can be migrated in one go. ``tenants``: those whose passes must be
    completed, for a backfill with a pass for each. Raises ``BackfillRefused``.
    """

    reduces_to_sql = False
    reversible = True
    atomic = False

    def __init__(self, name: str, *, model: str, tenants: tuple[str, ...] = ("",)) -> None:
        self.name, self.model, self.tenants = name, model, tuple(tenants)

    def state_forwards(self, app_label: str, state: Any) -> None:
        """The schema stays as it is."""

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        """Look at the ledger."""
        alias = schema_editor.connection.alias
        rows = from_state.apps.get_model(self.model)._base_manager.using(alias)
        if schema_editor.collect_sql or not rows.exists():
            return
        jobs = conf.current().database
        for tenant in self.tenants:
            passes = Backfill.objects.using(jobs).filter(name=self.name, tenant=tenant)
            if not passes.filter(state=PassState.COMPLETED).exists():
                of = f" of tenant {tenant!r}" if tenant else ""
                raise BackfillRefused(
                    "requires",
                    f"This migration needs backfill {self.name}{of}, which is not completed, and "
                    f"{self.model} has rows. Run `manage.py backfill run {self.name} --wait` with "
                    "the release before this migration.",
                )

    def database_backwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        """Nothing is needed to go back."""

    def describe(self) -> str:
        """For ``migrate``'s output."""
        return f"Requires backfill {self.name}"

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        """For migrations that are written again."""
        return type(self).__name__, [self.name], {"model": self.model, "tenants": self.tenants}
