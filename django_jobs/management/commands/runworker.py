"""Run jobs. ``jobs_worker`` is the same command, for projects where another app has this name."""

from django_jobs.management.commands.jobs_worker import Command

__all__ = ["Command"]
