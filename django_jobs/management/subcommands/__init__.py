"""What ``manage.py jobs`` can be asked. Each module is one word after it.

A module gives ``HELP``, ``add_arguments(parser)`` and ``handle(options, write)``, which writes its
answer line by line. To add one, name it in ``SUBCOMMANDS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from django_jobs.management.subcommands import schedules

SUBCOMMANDS: Mapping[str, ModuleType] = {"schedules": schedules}
