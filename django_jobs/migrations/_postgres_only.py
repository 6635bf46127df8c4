"""An operation for one engine: ``RunSQL`` by itself runs on every one."""

from typing import Any

from django.db.migrations.operations import RunSQL


class PostgresOnly(RunSQL):
    """SQL that runs on PostgreSQL and does nothing elsewhere."""

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        """Run the SQL, on PostgreSQL."""
        if schema_editor.connection.vendor == "postgresql":
            super().database_forwards(app_label, schema_editor, from_state, to_state)

    def database_backwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        """Run the reverse SQL, on PostgreSQL."""
        if schema_editor.connection.vendor == "postgresql":
            super().database_backwards(app_label, schema_editor, from_state, to_state)
