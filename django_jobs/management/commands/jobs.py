"""Look at jobs and what makes them: ``manage.py jobs <what>``."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import BaseCommand

from django_jobs.management.subcommands import SUBCOMMANDS


class Command(BaseCommand):
    """Hands over to the subcommand that is named."""

    help = "Shows jobs and what makes them."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """One parser for each subcommand."""
        chosen = parser.add_subparsers(dest="subcommand", required=True, metavar="what")
        for name, module in SUBCOMMANDS.items():
            module.add_arguments(chosen.add_parser(name, help=module.HELP))

    def handle(self, *args: Any, **options: Any) -> None:
        """Do what is asked."""
        SUBCOMMANDS[options["subcommand"]].handle(options, self.stdout.write)
