"""A column is added later: a backfill fills it, is killed half-way, and converges all the same."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db.models import Sum

from django_jobs.models import Job
from django_jobs.operations.backfilling import found_pass, start_backfill
from testproject.search.backfills import count_lines, uncounted
from testproject.search.models import Document
from testproject.search.scenes.workers import until, worker

Say = Callable[..., None]


def play(say: Say, log: Path) -> None:
    """The gate's exit code before and after, and what the ledger says in between."""
    say("A backfill of Document.line_count, its worker killed half-way", title=True)
    say(f"  manage.py backfill pending ends with {gate()}: {uncounted().count()} rows to fill")
    started = start_backfill(count_lines)
    half = Document.objects.count() // 2
    with worker(log):
        until(lambda: seen(started.pk).rows >= half, "half of the rows")
        victim = Job.objects.get(id=started.job_id).worker
        os.kill(int(victim.split(":")[1]), signal.SIGKILL)
        say(f"  kill -9 of worker {victim} after {seen(started.pk).rows} rows"[:78])
        until(lambda: seen(started.pk).state == "completed", "the pass to be completed")
    done = seen(started.pk)
    lines = Document.objects.aggregate(n=Sum("line_count"))["n"]
    say(f"  resumed: {done.rows} rows in {done.pages} pages, each once; {lines:,} lines")
    say(f"  manage.py backfill pending ends with {gate()}")
    say("")


def seen(pass_id: Any) -> Any:
    return found_pass(pass_id)


def gate() -> int:
    """The exit code that a deploy looks at."""
    command = [sys.executable, str(settings.BASE_DIR / "manage.py"), "backfill", "pending"]
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "testproject.settings"}
    return subprocess.run(command, env=environment, capture_output=True).returncode
