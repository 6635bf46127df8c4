"""The demo: index Python's own standard library with durable jobs."""

import subprocess
import sysconfig
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection, transaction
from django.db.models import Count, Max, Min

from django_jobs import enqueue
from django_jobs.management.commands.jobs_worker import count
from django_jobs.models import Attempt, Job, Outbox
from testproject.search import fresh
from testproject.search.finding import search
from testproject.search.jobs import index_document
from testproject.search.models import Document
from testproject.search.scenes import digest, edits, lines
from testproject.search.scenes.workers import manage, stop

BATCH = 100
WIDTH = 40
QUERY = "socket timeout"


class Undone(Exception):
    """Raised to roll a batch back."""


class Command(BaseCommand):
    """Stores the files, rolls one batch back, runs a worker, shows what came of it."""

    help = "Indexes Python's standard library with jobs, on a fresh SQLite database."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--limit", type=count, help="Only so many, from all over it")

    def handle(self, *args: Any, limit: int | None, **options: Any) -> None:
        files = standard_library(limit)
        database = self.fresh_database()
        self.say(f"{len(files)} files of Python's standard library", title=True)
        self.say(f"  {sysconfig.get_path('stdlib')}")
        started = time.monotonic()
        self.store(files)
        self.roll_back(files[:BATCH])
        log = database.with_suffix(".log")
        log.unlink(missing_ok=True)
        self.work(len(files), log)
        self.report(time.monotonic() - started)
        edits.play(self.say, log)
        digest.play(self.say, log)
        lines.play(self.say, log)
        self.find()

    def say(self, text: str, *, title: bool = False) -> None:
        self.stdout.write(self.style.MIGRATE_HEADING(text) if title else text)

    def fresh_database(self) -> Path:
        try:
            path = fresh.remake()
        except fresh.NotTheDemos as error:
            raise CommandError(str(error)) from error
        call_command("migrate", verbosity=0)
        get_user_model().objects.create_superuser("admin", password="admin")
        return path

    def store(self, files: list[Path]) -> None:
        """Each batch in a transaction: its documents and their jobs, or neither."""
        root = Path(sysconfig.get_path("stdlib"))
        for start in range(0, len(files), BATCH):
            with transaction.atomic():
                for file in files[start : start + BATCH]:
                    store(str(file.relative_to(root)), file.read_bytes())
        jobs = Outbox.objects.filter(outcome=None).count()
        self.say(
            f"\n  stored {Document.objects.count()} documents and {jobs} jobs in batches of {BATCH}"
        )

    def roll_back(self, files: list[Path]) -> None:
        """One batch fails at its end; nothing of it may be left."""
        before = (Document.objects.count(), Outbox.objects.count(), Job.objects.count())
        try:
            with transaction.atomic():
                for file in files:
                    store(f"undone/{file.name}/{id(file)}", file.read_bytes())
                inside = Document.objects.count() - before[0]
                raise Undone
        except Undone:
            pass
        after = (Document.objects.count(), Outbox.objects.count(), Job.objects.count())
        if after != before:
            raise CommandError(f"The batch that rolled back left something: {before} -> {after}")
        self.say(f"  rolled back a batch of {inside}: 0 documents and 0 jobs of it exist")

    def work(self, total: int, log: Path) -> None:
        self.say("\nmanage.py runworker --drain", title=True)
        worker = manage(log, "runworker", "--drain")
        started = time.monotonic()
        try:
            while worker.poll() is None:
                self.progress(total, time.monotonic() - started)
                with suppress(subprocess.TimeoutExpired):
                    worker.wait(0.5 if self.stdout.isatty() else 5)
        except KeyboardInterrupt:
            raise CommandError("Interrupted: the worker was stopped too.") from None
        finally:
            stop(worker)
        self.progress(total, time.monotonic() - started, last=True)
        if worker.returncode != 0:
            raise CommandError(f"The worker ended with {worker.returncode}; see {log}.")

    def progress(self, total: int, seconds: float, *, last: bool = False) -> None:
        done = Job.objects.filter(finished_at__isnull=False).count()
        filled = WIDTH * done // max(total, 1)
        bar = "#" * filled + "." * (WIDTH - filled)
        text = f"  [{bar}] {done}/{total}  {seconds:.0f} s"
        if self.stdout.isatty():
            self.stdout.write(f"\r{text}", ending="\n" if last else "")
        else:
            self.stdout.write(text)
        self.stdout.flush()

    def report(self, seconds: float) -> None:
        span = Job.objects.aggregate(first=Min("started_at"), last=Max("finished_at"))
        busy = (span["last"] - span["first"]).total_seconds()
        self.say("")
        self.say("What was done", title=True)
        for row in Job.objects.values("state").annotate(n=Count("id")).order_by("state"):
            self.say(f"  {row['state']:<10} {row['n']:>6}")
        finished = Job.objects.filter(state__in=("done", "dead")).count()
        rate = finished / busy if busy else 0
        self.say(
            f"  {finished} jobs in {busy:.1f} s: {rate:.0f} jobs a second, each an index write"
        )
        retried = Job.objects.filter(attempt__gt=1).count()
        self.say(f"  {retried} retried; {seconds:.0f} s in all with storing and starting")
        dead = list(Job.objects.filter(state="dead").order_by("finished_at")[:5])
        if dead:
            self.say(
                "\nDead for good: trying again would not make these files readable", title=True
            )
        for job in dead:
            attempt = Attempt.objects.filter(job_id=job.id).latest("pk")
            path = Document.objects.get(pk=job.payload["document_id"]).path
            self.say(f"  {path}"[:78])
            self.say(f"    {attempt.error_class}: {attempt.message}"[:78])
        self.say("")

    def find(self) -> None:
        self.say(f"Search for {QUERY!r}", title=True)
        for document, score in search(QUERY, limit=5):
            self.say(f"  {score:6.2f}  {document.path}"[:78])
        if connection.vendor != "sqlite":
            return  # The servers end with the demo.
        self.say("\nmake serve shows the search at http://127.0.0.1:8000/ and the jobs at")
        self.say("http://127.0.0.1:8000/admin/ (user admin, password admin).")


def store(path: str, content: bytes) -> None:
    """A document and the job that indexes it: both, or neither."""
    document = Document.objects.create(path=path, content=content)
    enqueue(index_document, document_id=document.pk)


def standard_library(limit: int | None) -> list[Path]:
    """The source files of the running interpreter's standard library; ``limit`` from all over."""
    root = Path(sysconfig.get_path("stdlib"))
    files = sorted(
        file
        for file in root.rglob("*.py")
        if not {"site-packages", "dist-packages"} & {*file.parts} and file.is_file()
    )
    if limit is None or limit >= len(files):
        return files
    return [files[number * len(files) // limit] for number in range(limit)]
