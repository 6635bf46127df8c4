"""Indexing is a job: enqueued where the document is stored, in the same transaction."""

import ast
import re
import time
from collections import Counter
from collections.abc import Iterator

from django.core.mail import EmailMessage
from django.db import transaction
from django.db.models import Sum
from django.utils import timezone

from django_jobs import PER_CALL, Retry, current_job, job, step
from django_jobs.errors import Interrupted
from testproject.search.models import Document, Interruption, Posting

Defined = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
# `HTTPServer` is "HTTP" and "Server".
WORD = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Za-z][a-z]+")
# Trying again does not make these files readable, so they end dead at once, with the reason.
UNREADABLE = (UnicodeDecodeError, SyntaxError, ValueError)


@job(idempotency_key="index:{document_id}", retry=Retry(terminal_on=UNREADABLE))
def index_document(document_id: int) -> int:
    """Replace the postings of a document; the number of different words in it."""
    document = Document.objects.get(pk=document_id)
    words = words_of(bytes(document.content))
    with transaction.atomic():
        Posting.objects.filter(document=document).delete()
        Posting.objects.bulk_create(
            Posting(word=word, document=document, count=count) for word, count in words.items()
        )
        document.length = words.total()
        document.indexed_at = timezone.now()
        document.save(update_fields=["length", "indexed_at"])
    return len(words)


@job(lane="{document_id}")
def index_edit(document_id: int, edit: int) -> int:
    """Index a document slowly, for its newest edit only; the edit's number."""
    try:
        for _ in range(50):  # A large document takes its time, and looks up now and then.
            current_job().check()
            time.sleep(0.01)
    except Interrupted:
        Interruption.objects.create(job_id=current_job().id)
        raise
    index_document(document_id)
    return edit


def words_of(source: bytes) -> Counter[str]:
    """The words of a file's names and docstrings. Raises what makes a file unreadable."""
    tree = ast.parse(source.decode("utf-8-sig"))  # Python reads files with a BOM, and so do we.
    words: Counter[str] = Counter()
    for node in (tree, *definitions(tree)):
        text = f"{getattr(node, 'name', '')} {ast.get_docstring(node, clean=False) or ''}"
        words.update(word.lower()[:60] for word in WORD.findall(text))
    return words


def definitions(parent: ast.AST) -> Iterator[Defined]:
    """Every class and function below ``parent``; expressions hold none, so they are not walked."""
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, Defined):
            yield node
        if isinstance(node, ast.stmt | ast.ExceptHandler):
            yield from definitions(node)


@job(idempotency_key=PER_CALL)
def digest(readers: list[str]) -> None:
    """Collect, wait for an approval, rest, and mail each reader once, whatever happens to us."""
    documents, words = step.parallel(
        lambda: step.run("count the documents", Document.objects.count),
        lambda: step.run("find the words", most_frequent_words, 3),
    )
    text = f"{documents} documents, mostly about {', '.join(words)}."
    editor = step.wait_for_event("digest approved", type=str)
    step.sleep("rest", 2)
    for reader in readers:
        step.run(f"mail {reader}", send, reader, f"{text} Approved by {editor}.")


def most_frequent_words(count: int) -> list[str]:
    """The words that are in the index most often."""
    totals = Posting.objects.values_list("word").annotate(n=Sum("count")).order_by("-n", "word")
    return [word for word, _ in totals[:count]]


def send(reader: str, text: str) -> None:
    """One mail. Its key is the same on every attempt: a mail service drops the second one."""
    time.sleep(0.5)  # As a mail server would take.
    headers = {"Idempotency-Key": step.key()}
    EmailMessage("Digest", text, "demo@example.com", [reader], headers=headers).send()
