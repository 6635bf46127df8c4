"""The Django app."""

from __future__ import annotations

from django.apps import AppConfig


class DjangoJobsConfig(AppConfig):
    """Loads the jobs of every installed app once all models exist."""

    name = "django_jobs"
    verbose_name = "Jobs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Bind ``enqueue`` to the definitions, and import every app's jobs."""
        return


