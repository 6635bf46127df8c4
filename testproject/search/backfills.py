"""Counts the lines of every document, for a column that came later."""

from django.db.models import QuerySet

from django_jobs import Page, backfill
from testproject.search.models import Document


def uncounted() -> QuerySet[Document]:
    return Document.objects.filter(line_count=None)


@backfill(
    source=uncounted,
    count=lambda: uncounted().count(),
    requires=[("search", "0003")],
    batch=25,
    rate=25,
    name="count_lines",
)
def count_lines(page: Page) -> None:
    for document in page:
        document.line_count = bytes(document.content).count(b"\n")
        document.save(update_fields=["line_count"])
