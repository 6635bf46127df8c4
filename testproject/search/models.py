"""A search over source files: documents, and how often each word stands in each."""

from django.db import models


class Document(models.Model):
    """One source file, as its bytes were when it was stored."""

    path = models.CharField(max_length=300, unique=True)
    content = models.BinaryField()
    length = models.IntegerField(default=0, help_text="Words, when it is indexed.")
    line_count = models.IntegerField(null=True, blank=True)
    indexed_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return self.path


class Interruption(models.Model):
    """When a run of ``index_edit`` learned that it must stop."""

    job_id = models.UUIDField()
    at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.job_id} stopped"


class Posting(models.Model):
    """How often a word stands in a document."""

    word = models.CharField(max_length=60)
    document = models.ForeignKey(Document, models.CASCADE)
    count = models.IntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(name="posting", fields=("word", "document"))]

    def __str__(self) -> str:
        return f"{self.word} in {self.document_id}"
