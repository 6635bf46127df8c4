"""A database router for projects whose jobs live in a database of their own."""

from __future__ import annotations

from typing import Any

from django.db.models import Model

from django_jobs import conf

APP = "django_jobs"


class JobsRouter:
    """Keeps the jobs in ``DATABASE``, and an outbox in every database that stages jobs.

    ``DATABASE_ROUTERS = ["django_jobs.routers.JobsRouter", ...]``, then ``migrate`` each alias.
    It has no say about the models of other apps.
    """

    def db_for_read(self, model: type[Model], **hints: Any) -> str | None:
        """``DATABASE``; an entry that was read stays with its own outbox."""
        return self._home(model, hints)

    def db_for_write(self, model: type[Model], **hints: Any) -> str | None:
        """As for reading: never a replica."""
        return self._home(model, hints)

    def allow_migrate(
        self, db: str, app_label: str, model_name: str | None = None, **hints: Any
    ) -> bool | None:
        """The outbox on ``OUTBOX_DATABASES`` and ``DATABASE``, all else on ``DATABASE`` only."""
        if app_label != APP:
            return None
        settings = conf.current()
        if model_name == "outbox":
            return db in {settings.database, *settings.outbox_databases}
        return db == settings.database

    def _home(self, model: type[Model], hints: dict[str, Any]) -> str | None:
        if model._meta.app_label != APP:
            return None
        settings = conf.current()
        instance = hints.get("instance")
        if model._meta.model_name == "outbox" and isinstance(instance, model):
            stored = instance._state.db
            if stored in settings.outbox_databases:
                return stored
        return settings.database
