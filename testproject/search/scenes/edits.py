"""One document edited many times in a row, each edit indexed slowly: a lane."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path

from django.db import transaction

from django_jobs import enqueue, get
from django_jobs.models import Job
from django_jobs.operations import Standing
from testproject.search.jobs import index_edit
from testproject.search.models import Document, Interruption
from testproject.search.scenes.workers import until, worker

EDITS = 20
PAUSE = 0.1
"""Seconds between two edits; indexing one takes longer."""

SHOWN = 4

Say = Callable[..., None]


def play(say: Say, log: Path) -> None:
    """Edit while a worker runs, then show which edits gave way to which."""
    say(f"One document, edited {EDITS} times while its index is built slowly", title=True)
    document = Document.objects.create(path="edited/notes.py", content=b"")
    with worker(log, "--threads", "2"):
        ids = [edit(document, number) for number in range(1, EDITS + 1)]
        until(lambda: get(ids[-1]).state == "done", "the last edit to be indexed")
        until(
            lambda: not Job.objects.filter(id__in=ids).exclude(worker="").exclude(state="done"),
            "the superseded runs to end",
        )
    report(say, [get(id_) for id_ in ids], document)


def edit(document: Document, number: int) -> object:
    """Store an edit and enqueue its indexing, in one transaction."""
    time.sleep(PAUSE)
    with transaction.atomic():
        document.content = f'"""Edit {number}."""\n\ndef edit_{number}(): ...\n'.encode()
        document.save(update_fields=["content"])
        return enqueue(index_edit, document_id=document.pk, edit=number).id


def report(say: Say, edits: list[Standing], document: Document) -> None:
    """The counts, a few of the superseded, how soon the runs stopped, and the last text."""
    number = {one.id: position for position, one in enumerate(edits, 1)}
    ran = [one for one in edits if one.started_at is not None]
    waited = [one for one in edits if one.state in ("cancelled", "displaced") and one not in ran]
    done = [one for one in edits if one.state == "done"]
    stopped_runs = len(ran) - len(done)
    say(
        f"  {len(edits)} enqueued: {len(waited)} superseded while they waited, {stopped_runs} "
        f"while they ran, {len(done)} done"
    )
    for one in ran[:SHOWN] if len(ran) > 1 else waited[:SHOWN]:
        by = one.superseded_by or one.job_id
        if one.state == "cancelled" and by in number:
            say(f"  edit {number[one.id]:>2} gave way to edit {number[by]:>2}")
    stopped = Interruption.objects.filter(job_id__in=[one.id for one in edits])
    finished = {one.id: one.finished_at for one in edits}
    lags = [(row.at - finished[row.job_id]).total_seconds() * 1000 for row in stopped]
    if lags:
        say(
            f"  a stopped run knew {statistics.median(lags):.0f} ms after the newer edit was "
            f"published (at most {max(lags):.0f})"
        )
    document.refresh_from_db()
    text = bytes(document.content).decode().splitlines()[0]
    say(f"  done: edit {done[-1].result}; the text that is indexed: {text}")
    say("")
