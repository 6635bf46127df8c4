"""Backfills from the command line: ``manage.py backfill run NAME`` and the like."""

from __future__ import annotations

import argparse
import getpass
import json
import sys
import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from django_jobs.backfills import Backfill as Declaration
from django_jobs.backfills import backfills, named
from django_jobs.errors import BackfillRefused, JobsError
from django_jobs.models import Backfill
from django_jobs.operations.backfilling import (
    cancel_backfill,
    found_pass,
    newest_pass,
    pause_backfill,
    rerate_backfill,
    resume_backfill,
    start_backfill,
)
from django_jobs.operations.gate import check_gate
from django_jobs.operations.reporting import report, share, shown_state
from django_jobs.states import PassState
from django_jobs.sweep.rehearsal import rehearse

ORDERS = {"pause": pause_backfill, "resume": resume_backfill, "cancel": cancel_backfill}
FINE = {"planned", "enqueued", "skipped", "completed"}
"""What may come of a run for it to end with 0."""


def whole(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


class Command(BaseCommand):
    """One subcommand for each order, each with the options that it reads."""

    help = "Starts, shows and steers backfills. `pending` ends non-zero while one is to be run."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The subcommands."""
        orders = parser.add_subparsers(dest="order", required=True)
        listing = orders.add_parser("list", help="The passes in the ledger, newest first")
        listing.add_argument("--name")
        listing.add_argument("--state", choices=[s.value for s in PassState])
        listing.add_argument("--limit", type=whole, default=50)
        pending = orders.add_parser("pending", help="What is declared and not completed")
        pending.add_argument(
            "--complete", action="store_true", help="A pass that runs is not enough either"
        )
        run = orders.add_parser("run", help="Start a pass")
        which = run.add_mutually_exclusive_group(required=True)
        which.add_argument("name", nargs="?")
        which.add_argument("--all", action="store_true", help="All that are pending")
        run.add_argument("--tenant", help="Only this tenant's")
        run.add_argument("--force", action="store_true", help="Also if it is completed already")
        run.add_argument("--dry-run", action="store_true", help="Some pages, rolled back")
        run.add_argument("--pages", type=whole, default=3, help="Pages of a dry run (3)")
        run.add_argument("--wait", action="store_true", help="Until the pass has ended")
        rate = orders.add_parser("rate", help="Another speed limit, from the next page on")
        rate.add_argument("name")
        rate.add_argument("rate", help="Pages a second (rows with --rows), or none")
        rate.add_argument("--rows", action="store_true")
        rate.add_argument("--tenant", default="")
        for order in ORDERS:
            sub = orders.add_parser(order)
            sub.add_argument("name")
            sub.add_argument("--tenant", default="")
            if order != "resume":
                sub.add_argument("--reason", default="")
        for sub in (listing, pending, run, rate):
            sub.add_argument("--json", action="store_true", help="One JSON object on stdout")

    def handle(self, *args: Any, **options: Any) -> None:
        """Carry out one order."""
        order = options["order"]
        try:
            if order in ORDERS:
                self._order(ORDERS[order], options)
            else:
                getattr(self, f"_{order}")(options)
        except JobsError as error:
            raise CommandError(str(error)) from error

    def _list(self, options: dict[str, Any]) -> None:
        rows = Backfill.objects.all().with_progress().order_by("-created_at", "-id")
        for column in ("name", "state"):
            if options[column] is not None:
                rows = rows.filter(**{column: options[column]})
        self._print({"passes": [_shown(row) for row in rows[: options["limit"]]]}, options)

    def _pending(self, options: dict[str, Any]) -> None:
        found = report()
        shown = [
            {
                "name": one.name,
                "tenant": one.tenant,
                "state": one.state,
                "changed": one.changed,
                "pending": one.is_pending,
                "requires": [".".join(r) for r in one.requires],
                "environments": list(one.environments),
                "pass": None if one.pass_id is None else str(one.pass_id),
            }
            for one in found.standings
        ]
        document = {
            "environment": found.environment,
            "backfills": shown,
            "pending": sum(one.is_pending for one in found.standings),
            "orphaned": found.orphaned,
        }
        self._print(document, options)
        if any(one.is_open if options["complete"] else one.is_pending for one in found.standings):
            sys.exit(1)

    def _run(self, options: dict[str, Any]) -> None:
        chosen = list(backfills().values()) if options["all"] else [named(options["name"])]
        plan = [
            (declared, tenant)
            for declared in chosen
            for tenant in declared.tenants()
            if options["tenant"] in (None, tenant)
        ]
        if not plan:
            raise CommandError(f"No backfill of tenant {options['tenant']!r} to run.")
        rows = [self._run_one(declared, tenant, options) for declared, tenant in plan]
        self._print({"runs": rows}, options)
        if not {row["action"] for row in rows} <= FINE:
            sys.exit(1)

    def _run_one(
        self, declared: Declaration, tenant: str, options: dict[str, Any]
    ) -> dict[str, Any]:
        """One name, whatever becomes of the others."""
        row: dict[str, Any] = dict.fromkeys(("remaining", "job", "pass", "why", "rehearsal"))
        row |= {"name": declared.name, "tenant": tenant, "action": "planned"}
        try:
            if options["dry_run"]:
                check_gate(declared, tenant, force=options["force"])
                row["rehearsal"] = rehearse(declared, tenant, pages=options["pages"])
                row["remaining"] = _remaining(declared, tenant)
                return row
            made = start_backfill(declared, tenant=tenant, force=options["force"], by=_me())
            row |= {"action": "enqueued", "job": str(made.job_id), "pass": str(made.pk)}
            if options["wait"]:
                row["action"] = self._wait(made)
        except BackfillRefused as error:
            # What --all finds completed is no finding.
            skipped = options["all"] and error.gate in ("applied", "environment")
            action = "running" if error.gate == "running" else "skipped" if skipped else "blocked"
            job = None if error.job_id is None else str(error.job_id)
            row |= {"action": action, "why": str(error), "job": job}
        except JobsError as error:
            row |= {"action": "blocked", "why": str(error)}
        return row

    def _wait(self, made: Backfill) -> str:
        """Show the progress until the pass has ended; how."""
        row: Any = None
        while row is None or row.state == PassState.RUNNING:
            time.sleep(0.2)
            row = found_pass(made.pk)
            if sys.stderr.isatty():
                self.stderr.write(f"\r{bar(row)}", ending="")
        self.stderr.write(bar(row))
        return str(row.state)

    def _order(self, order: Any, options: dict[str, Any]) -> None:
        row = newest_pass(named(options["name"]).name, options["tenant"])
        given = {"reason": options["reason"]} if "reason" in options else {}
        order(row.pk, by=_me(), **given)
        self.stdout.write(f"{row.name}: {found_pass(row.pk).state}")

    def _rate(self, options: dict[str, Any]) -> None:
        text = options["rate"]
        try:
            rate = None if text == "none" else float(text)
        except ValueError:
            raise CommandError(
                f"{text!r} is no rate; expected a number above 0, or none."
            ) from None
        row = newest_pass(named(options["name"]).name, options["tenant"])
        rerate_backfill(row.pk, rate, "rows" if options["rows"] else "pages")
        self._print({"passes": [_shown(found_pass(row.pk))]}, options)

    def _print(self, document: dict[str, Any], options: dict[str, Any]) -> None:
        if options["json"]:
            self.stdout.write(json.dumps(document))
            return
        for key, value in document.items():
            if not isinstance(value, list):
                self.stdout.write(f"{key}: {value}")
                continue
            for line in value:
                self.stdout.write(line if isinstance(line, str) else _line(line))


def bar(row: Any, width: int = 30) -> str:
    """How far a pass is, as a line of text."""
    part = share(row)
    filled = "" if part is None else f"[{'#' * int(width * part):<{width}}] {part:4.0%} "
    return f"{row.name} {filled}{row.rows:,} rows, {row.state} {row.note}".rstrip()


def _shown(row: Any) -> dict[str, Any]:
    cursors = row.ranges.filter(done=False).order_by("number").values_list("cursor", flat=True)
    return {
        "pass": str(row.pk),
        "name": row.name,
        "tenant": row.tenant,
        "state": shown_state(row),
        "rows": row.rows,
        "pages": row.pages,
        "skipped": row.skipped,
        "expected": row.expected,
        "cursor": next(iter(cursors), None),
        "rate": row.rate,
        "rate_per": row.rate_per,
        "note": row.note,
        "error": row.error,
        "job": None if row.job_id is None else str(row.job_id),
        "checksum": row.checksum,
        "release": row.release,
        "started": _time(row.started_at),
        "heartbeat": _time(row.beat_at),
        "finished": _time(row.finished_at),
    }


def _time(value: Any) -> str | None:
    return None if value is None else value.isoformat()


def _line(row: dict[str, Any]) -> str:
    cells = [f"{key}={value}" for key, value in row.items() if value not in (None, "", [], False)]
    return "  ".join(cells)


def _remaining(declared: Declaration, tenant: str) -> object:
    """What ``count`` says; ``None`` when it says nothing: a plan is worth showing without it."""
    try:
        return declared.remaining(tenant)
    except Exception:
        return None


def _me() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""
