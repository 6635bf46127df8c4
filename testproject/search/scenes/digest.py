"""A digest goes on where it stopped when its worker was killed."""

import re
from collections.abc import Callable
from email import message_from_string
from email.message import Message
from pathlib import Path

from django.conf import settings
from django.core.management.base import CommandError

from django_jobs import emit, enqueue, get
from django_jobs.models import Job, Step
from testproject.search.jobs import digest
from testproject.search.scenes.workers import kill, until, worker

Say = Callable[..., None]

READERS = ["ann@example.com", "bob@example.com", "cleo@example.com"]


def play(say: Say, log: Path) -> None:
    """Run the digest while a worker is up; raises ``CommandError`` if it goes wrong."""
    say("A digest in steps: manage.py runworker", title=True)
    with worker(log):
        _play(say)
    say("")


def _play(say: Say) -> None:
    for old in Path(settings.EMAIL_FILE_PATH).glob("*.log"):
        old.unlink()
    job = enqueue(digest, READERS)
    until(
        lambda: Step.objects.filter(job_id=job.id, status="waiting", event__isnull=False),
        "its wait for an approval",
    )
    say("  collected two things; it waits for an approval, without a thread")
    emit("digest approved", "the editor")
    say("  emitted the approval; it sleeps 2 s, without a thread")
    until(
        lambda: Step.objects.filter(job_id=job.id, name=f"mail {READERS[0]}", status="done"),
        "the first mail",
    )
    kill(Job.objects.get(id=job.id).worker)
    say("  killed the worker process with kill -9 after the first of three mails")
    until(lambda: get(job.id).state == "done", "the digest to be done")
    for step in Step.objects.filter(job_id=job.id).order_by("position"):
        say(f"    {step.kind:<6} {step.name:<22} {step.status}")
    found = mails()
    if sorted(str(mail["To"]) for mail in found) != READERS:
        raise CommandError(f"Not each mail once: {[mail['To'] for mail in found]}")
    say(f"  {len(found)} mails, each once; what a mail service would tell a second one by:")
    for mail in found:
        say(f"    {mail['Idempotency-Key']}")


def mails() -> list[Message]:
    """What Django's file backend has written: one file for each connection, mails in between."""
    files = sorted(Path(settings.EMAIL_FILE_PATH).glob("*.log"))
    texts = [text for f in files for text in re.split(r"^-{79}$", f.read_text(), flags=re.M)]
    return [message_from_string(text.strip()) for text in texts if text.strip()]
