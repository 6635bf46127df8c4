"""A column is added later: a backfill fills it, is killed half-way, and converges all the same."""

from collections.abc import Callable
from pathlib import Path

from django.db.models import Sum

from django_jobs.models import Job
from django_jobs.operations.backfilling import found_pass, start_backfill
from testproject.search.backfills import count_lines, uncounted
from testproject.search.models import Document
from testproject.search.scenes.workers import kill, manage, until, worker

Say = Callable[..., None]


def play(say: Say, log: Path) -> None:
    """The gate's exit code before and after, and what the ledger says in between."""
    say("A backfill of Document.line_count, its worker killed half-way", title=True)
    say(f"  manage.py backfill pending ends with {gate()}: {uncounted().count()} rows to fill")
    started = start_backfill(count_lines)
    half = Document.objects.count() // 2
    with worker(log):
        until(lambda: found_pass(started.pk).rows >= half, "half of the rows")
        victim = Job.objects.get(id=started.job_id).worker
        kill(victim)
        say(f"  kill -9 of worker {victim} after {found_pass(started.pk).rows} rows"[:78])
        until(lambda: found_pass(started.pk).state == "completed", "the pass to be completed")
    done = found_pass(started.pk)
    lines = Document.objects.aggregate(n=Sum("line_count"))["n"]
    say(f"  resumed: {done.rows} rows in {done.pages} pages, each once; {lines:,} lines")
    say(f"  manage.py backfill pending ends with {gate()}")
    say("")


def gate() -> int:
    """The exit code that a deploy looks at."""
    return manage(None, "backfill", "pending").wait()
