"""The Django app."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig


class DjangoJobsConfig(AppConfig):
    """Loads the jobs of every installed app once all models exist."""

    name = "django_jobs"
    verbose_name = "Jobs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Bind ``enqueue`` to the definitions, connect logs and checks, import every app's jobs."""
        for module in ("operations", "sweep", "logs", "checks", "lanes.checks"):
            import_module(f"django_jobs.{module}")
        from django_jobs.definitions import autodiscover

        autodiscover()
