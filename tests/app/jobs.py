"""The jobs that the tests run."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import threading
import time
from typing import Any

from django.db import transaction
from django.db.models import F

from django_jobs import PER_CALL, Retry, RetryAfter, Terminal, conf, current_job, job
from tests.app.models import Account, Ledger

FAST = Retry(max_attempts=3, base=0.05, jitter=False)


def note(text: str) -> None:
    """One line in the ledger that this run was here."""
    running = current_job()
    Ledger.objects.create(
        job_key=str(running.id), attempt=running.attempt, pid=os.getpid(), note=text
    )


@job(idempotency_key=PER_CALL)
def noop(number: int = 0) -> None:
    """Does nothing."""


@job(idempotency_key="record:{key}", retry=FAST)
def record(key: str) -> str:
    """Notes that it ran; returns its key."""
    note(key)
    return key


@job(idempotency_key=PER_CALL, retry=FAST)
def slow(seconds: float, key: str = "") -> None:
    """Notes its start, sleeps in small steps while it may, notes its end."""
    note(f"start {key}")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        current_job().check()
        time.sleep(0.02)
    note(f"end {key}")


@job(lane="{document}", retry=FAST)
def reindex(document: int, text: str = "", seconds: float = 0.0) -> str:
    """Newer calls for one document supersede older ones; returns the text it was given."""
    note(f"start {text}")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        current_job().check()
        time.sleep(0.02)
    note(f"end {text}")
    return text


@job(lane="{document}", retry=FAST)
def stubborn(document: int, text: str, seconds: float) -> str:
    """Like ``reindex``, but never asks whether it should stop."""
    note(f"start {text}")
    time.sleep(seconds)
    note(f"end {text}")
    return text


@job(lane="{document}", supersede_running="on_start", retry=FAST)
def patient(document: int, text: str = "", fails: int = 0) -> str:
    """Like ``reindex``, but an older run goes on until a newer one is about to start."""
    note(f"start {text}")
    if current_job().attempt <= fails:
        raise ValueError("not yet")
    return text


@job(lane="{document}", idempotency_key="edit:{event}", retry=FAST)
def edited(document: int, event: str) -> str:
    """In a lane, and each event counts once while it waits."""
    note(event)
    return event


@job(lane=lambda document: None if document == 0 else f"d{document}", tenant="{owner}")
def sometimes(document: int, owner: str) -> None:
    """In a lane of its tenant, but for document 0."""


@job(idempotency_key=PER_CALL, retry=FAST)
def deaf(seconds: float, key: str = "") -> None:
    """Like ``slow``, but never asks whether it should stop."""
    note(f"start {key}")
    time.sleep(seconds)
    note(f"end {key}")


@job(idempotency_key=PER_CALL, retry=FAST)
def asleep(seconds: float, key: str = "") -> None:
    """Notes its start, then neither listens nor asks the database for anything."""
    note(f"start {key}")
    time.sleep(seconds)


@job(idempotency_key=PER_CALL, retry=FAST)
def fails(times: int = 10, key: str = "") -> str:
    """Fails on its first ``times`` attempts."""
    note(f"try {key}")
    if current_job().attempt <= times:
        raise ValueError(f"attempt {current_job().attempt} fails; password=hunter2")
    return "at last"


@job(idempotency_key=PER_CALL, retry=Retry(base=5, jitter=False))
def fails_once() -> None:
    """Fails on its first attempt; the second comes well after that."""
    if current_job().attempt == 1:
        raise ValueError("attempt 1 fails; password=hunter2")


@job(idempotency_key=PER_CALL)
def terminal() -> None:
    """Cannot be helped by trying again."""
    raise Terminal("no use")


@job(idempotency_key=PER_CALL, retry=FAST)
def later(seconds: float) -> None:
    """Asks to be tried again later."""
    raise RetryAfter(seconds)


@job(idempotency_key=PER_CALL)
def poison() -> None:
    """Kills its process."""
    os.kill(os.getpid(), signal.SIGKILL)


@job(idempotency_key=PER_CALL, timeout=0.3, retry=Retry(max_attempts=1))
def overdue(how: str) -> None:
    """Runs past its timeout: in SQL, in a loop that checks, or asleep."""
    from django.db import connection

    if how == "sql":
        connection.cursor().execute("SELECT pg_sleep(20)")
    until = time.monotonic() + 20
    while how == "loop" and time.monotonic() < until:
        current_job().check()
        time.sleep(0.01)


@job(idempotency_key=PER_CALL, retry=FAST)
async def coroutine(seconds: float, key: str = "") -> str:
    """An async body that uses the database."""
    await Ledger.objects.acreate(
        job_key=str(current_job().id), attempt=current_job().attempt, pid=os.getpid(), note=key
    )
    await asyncio.sleep(seconds)
    return key


@job(idempotency_key=PER_CALL)
def misbehaves(how: str) -> None:
    """Leaves its database connection in a bad way."""
    from django.db import connection, transaction

    if how == "autocommit off":
        transaction.set_autocommit(False)
        Account.objects.create(name="leak", balance=1)
    elif how == "begin":
        connection.cursor().execute("BEGIN")
        Account.objects.create(name="leak", balance=1)
    elif how == "swallow":
        try:
            with transaction.atomic():
                connection.cursor().execute("SELECT nonsense")
        except Exception:
            note("swallowed")
    elif how == "closed":
        connection.ensure_connection()
        connection.connection.close()
    elif how == "cursor":
        with transaction.atomic():
            next(Account.objects.iterator(chunk_size=1), None)
        connection.cursor().execute("DECLARE left_open CURSOR WITH HOLD FOR SELECT 1")
    elif how == "set":
        connection.cursor().execute("SET statement_timeout = 1")


@job(idempotency_key=PER_CALL)
def reports_progress() -> None:
    """Stores progress on its way."""
    current_job().progress({"done": 1, "of": 2})


@job(idempotency_key="tenanted:{key}", tenant="{tenant}", retry=FAST)
def tenanted(tenant: str, key: str) -> str:
    """Returns the tenant that it runs for."""
    note(current_job().tenant)
    return current_job().tenant


@job(idempotency_key=PER_CALL)
def ends_thread(name: str) -> None:
    """Makes a thread of its process end by an exception that nothing expects."""
    if Ledger.objects.filter(note=name).exists():
        return  # Once.
    note(name)
    for thread in threading.enumerate():
        if thread.name.startswith(name) and thread is not threading.current_thread():
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit)
            )


@job(idempotency_key=PER_CALL, timeout=0.3, retry=Retry(max_attempts=1))
async def coroutine_overdue() -> None:
    """An async body that sleeps past its timeout."""
    await asyncio.sleep(20)


@job(idempotency_key=PER_CALL)
async def coroutine_waiting(key: str) -> None:
    """An async body that ends when the ledger has a note ``release``, however long that takes."""
    await Ledger.objects.acreate(job_key=str(current_job().id), attempt=1, pid=0, note=key)
    while not await Ledger.objects.filter(note="release").aexists():
        await asyncio.sleep(0.05)


def move(amount: int) -> None:
    """Moves money from the first account to the second, on the jobs' own database."""
    accounts = Account.objects.using(conf.current().database)
    accounts.filter(name="from").update(balance=F("balance") - amount)
    Ledger.objects.using(conf.current().database).create(note=f"transfer {current_job().id}")
    accounts.filter(name="to").update(balance=F("balance") + amount)


@job(idempotency_key=PER_CALL, atomic=True, retry=FAST)
def transfers(amount: int, how: str = "") -> str:
    """Moves money and is done, in one transaction."""
    move(amount)
    if how == "fails once" and current_job().attempt == 1:
        raise ValueError("once")
    if how == "rolls back":
        transaction.set_rollback(True)
    current_job().progress(amount)
    return "moved"


@job(idempotency_key=PER_CALL)
def anything(value: Any) -> Any:
    """Returns what it is given, and reports it as its progress."""
    current_job().progress(value)
    return value


@job(idempotency_key=PER_CALL, timeout=0.3, retry=FAST)
def stuck(times: int) -> str:
    """Is beyond every reach on its first ``times`` attempts."""
    if current_job().attempt <= times:
        note("start stuck")
        time.sleep(600)
    return "free"
