"""``python -m tests.benchmarks``: see ``--help``."""

from __future__ import annotations

import argparse
import dataclasses
import os
import signal
import time
from collections.abc import Callable

from tests.benchmarks import ground
from tests.benchmarks.plan import QUICK, Bench, Sizes

SECTIONS = (
    *("enqueue", "many", "drain", "pickup", "idle"),
    *("steps", "events", "sleepers"),
    *("finished", "future", "pinned", "overflow", "lanes", "backfill"),
)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description="Measures django_jobs next to plain psycopg, on the server at DATABASE_URL or "
        "on one of its own. It makes a database of its own and drops it.",
    )
    parser.add_argument(
        "sections", nargs="*", metavar="section", help=f"some of: {', '.join(SECTIONS)} (all)"
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run at all?")
    parser.add_argument("--rounds", type=int, help="times that each figure is taken (3)")
    parser.add_argument("--threads", type=int, default=4, help="threads of the worker (4)")
    for field in dataclasses.fields(Sizes):
        kind = type(field.default)
        flag = "--" + field.name.replace("_", "-")
        parser.add_argument(flag, type=kind, help=f"({field.default:,})")
    found = parser.parse_args()
    unknown = set(found.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"no section {unknown.pop()!r}; there are {', '.join(SECTIONS)}")
    return found


def _sizes(arguments: argparse.Namespace) -> Sizes:
    base = QUICK if arguments.quick else Sizes()
    given = {
        field.name: value
        for field in dataclasses.fields(Sizes)
        if (value := getattr(arguments, field.name)) is not None
    }
    return dataclasses.replace(base, **given)


def _sections() -> dict[str, Callable[[Bench], None]]:
    # Django is set up by now; these import models.
    from tests.benchmarks import (
        backfilling,
        draining,
        enqueueing,
        overflowing,
        stepping,
        superseding,
        waiting,
    )

    made = (
        enqueueing.one_by_one,
        enqueueing.many,
        draining.empty_table,
        waiting.pickup,
        waiting.idle,
        stepping.steps,
        stepping.events,
        stepping.sleepers,
        draining.finished_rows,
        draining.future_rows,
        draining.pinned_snapshot,
        overflowing.admission,
        superseding.lanes,
        backfilling.pages,
    )
    return dict(zip(SECTIONS, made, strict=True))


def main() -> None:
    arguments = _arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # unwind as on Ctrl-C
    began = time.monotonic()
    with ground.server() as server, ground.database(server) as url:
        from tests.benchmarks import machine, raw
        from tests.benchmarks.counters import count_statements

        with raw.connect(url) as session:
            bench = Bench(
                url=url,
                raw=session,
                sizes=_sizes(arguments),
                rounds=arguments.rounds or (1 if arguments.quick else 3),
                threads=arguments.threads,
                quick=arguments.quick,
                statements=count_statements(session),
            )
            machine.describe(bench, server.describe())
            for name, measure in _sections().items():
                if not arguments.sections or name in arguments.sections:
                    measure(bench)
        print(
            f"\nload at the end: {os.getloadavg()[0]:.2f}; {time.monotonic() - began:.0f} s in all"
        )


if __name__ == "__main__":
    main()
