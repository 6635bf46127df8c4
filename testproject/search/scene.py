"""The demo's second scene: a digest goes on where it stopped when its worker was killed."""

import os
import re
import signal
import time
from collections.abc import Callable
from email import message_from_string
from email.message import Message
from pathlib import Path

from django.conf import settings
from django.core.management.base import CommandError

from django_jobs import emit, enqueue, get
from django_jobs.models import Job, Step
from testproject.search.jobs import digest

READERS = ["ann@example.com", "bob@example.com", "cleo@example.com"]
PATIENCE = 60.0


def play(say: Callable[[str], None]) -> None:
    """Run the digest on the worker that is up; raises ``CommandError`` if it goes wrong."""
    for old in Path(settings.EMAIL_FILE_PATH).glob("*.log"):
        old.unlink()
    job = enqueue(digest, READERS)
    until(lambda: Step.objects.filter(job_id=job.id, status="waiting", event__isnull=False))
    say("  collected two things; it waits for an approval, without a thread")
    emit("digest approved", "the editor")
    say("  emitted the approval; it sleeps 2 s, without a thread")
    until(lambda: Step.objects.filter(job_id=job.id, name=f"mail {READERS[0]}", status="done"))
    kill(Job.objects.get(id=job.id).worker)
    say("  killed the worker process with kill -9 after the first of three mails")
    until(lambda: get(job.id).state == "done")
    for step in Step.objects.filter(job_id=job.id).order_by("position"):
        say(f"    {step.kind:<6} {step.name:<22} {step.status}")
    found = mails()
    if sorted(str(mail["To"]) for mail in found) != READERS:
        raise CommandError(f"Not each mail once: {[mail['To'] for mail in found]}")
    say(f"  {len(found)} mails, each once; what a mail service would tell a second one by:")
    for mail in found:
        say(f"    {mail['Idempotency-Key']}")


def kill(worker: str) -> None:
    """SIGKILL for the process that runs a job; its supervisor starts another."""
    os.kill(int(worker.split(":")[1]), signal.SIGKILL)


def until(happened: Callable[[], object]) -> None:
    """Wait for the worker."""
    deadline = time.monotonic() + PATIENCE
    while not happened():
        if time.monotonic() > deadline:
            raise CommandError(f"The digest did not go on within {PATIENCE:g} s.")
        time.sleep(0.05)


def mails() -> list[Message]:
    """What Django's file backend has written: one file for each connection, mails in between."""
    files = sorted(Path(settings.EMAIL_FILE_PATH).glob("*.log"))
    texts = [text for f in files for text in re.split(r"^-{79}$", f.read_text(), flags=re.M)]
    return [message_from_string(text.strip()) for text in texts if text.strip()]
