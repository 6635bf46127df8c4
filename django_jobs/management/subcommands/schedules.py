"""``manage.py jobs schedules``: every schedule, how it stands, and when it is due next."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from django_jobs.admin.showing import visible
from django_jobs.operations.scheduling import MOST_AHEAD, ScheduleStanding, standings

HELP = "Lists the schedules, how each stands and when it is due next."


def number(text: str) -> int:
    """How many occurrences to look ahead: 0 to ``MOST_AHEAD``."""
    if not (text.isascii() and text.isdigit()) or int(text) > MOST_AHEAD:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0 to {MOST_AHEAD:,}")
    return int(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument(
        "--next", type=number, default=1, metavar="N", help="Occurrences to look ahead (1)"
    )
    parser.add_argument("--json", action="store_true", help="One JSON document, for programs")


def handle(options: Mapping[str, Any], write: Callable[[str], object]) -> None:
    """Write the list."""
    found = standings(ahead=options["next"])
    if options["json"]:
        write(json.dumps([_document(one) for one in found], indent=2))
        return
    if not found:
        write("There are no schedules. Put @schedule above a job to declare one.")
    for one in found:
        for line in _lines(one):
            write(visible(line))


def _lines(one: ScheduleStanding) -> list[str]:
    lines = [f"{one.name}  [{one.condition}]  {one.cadence}"]
    if one.job != one.name:
        lines.append(f"    job    {one.job}")
    if one.condition == "paused":
        lines.append(f"    paused by {one.paused_by or 'somebody'}: {one.pause_reason}")
    if one.error:
        lines.append(f"    error  {one.error}")
    if one.last is not None:
        at = "" if one.last.occurrence is None else f" {_text(one.last.occurrence)}"
        why = f": {one.last.reason}" if one.last.reason else ""
        lines.append(f"    last   {one.last.outcome}{at}{why}")
    lines += [f"    next   {_text(at)}" for at in one.ahead]
    return lines


def _text(at: datetime) -> str:
    return at.isoformat(sep=" ", timespec="seconds")


def _document(one: ScheduleStanding) -> dict[str, Any]:
    last = one.last
    return {
        "name": one.name,
        "job": one.job,
        "cadence": one.cadence,
        "condition": one.condition,
        "next": [at.isoformat() for at in one.ahead],
        "watermark": None if one.watermark is None else one.watermark.isoformat(),
        "error": one.error,
        "paused_by": one.paused_by,
        "pause_reason": one.pause_reason,
        "last": None
        if last is None
        else {
            "outcome": last.outcome,
            "occurrence": None if last.occurrence is None else last.occurrence.isoformat(),
            "occurrences": last.occurrences,
            "tenant": last.tenant,
            "reason": last.reason,
            "job_id": None if last.job_id is None else str(last.job_id),
            "decided_at": last.decided_at.isoformat(),
        },
    }
