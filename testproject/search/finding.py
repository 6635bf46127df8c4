"""The search itself."""

import math
from collections import defaultdict

from testproject.search.jobs import WORD
from testproject.search.models import Document, Posting

MOST_WORDS = 10


def search(query: str, limit: int = 10) -> list[tuple[Document, float]]:
    """The documents that fit ``query`` best, with their scores; rare words weigh more."""
    words = list(dict.fromkeys(word.lower() for word in WORD.findall(query)))[:MOST_WORDS]
    total = Document.objects.exclude(indexed_at=None).count()
    scores: dict[int, float] = defaultdict(float)
    for word in words:
        # Not the documents themselves: their content is megabytes.
        rows = Posting.objects.filter(word=word)
        postings = rows.values_list("document_id", "count", "document__length")
        rarity = math.log(1 + total / (1 + len(postings)))
        for document_id, count, length in postings:
            scores[document_id] += rarity * count / math.sqrt(1 + length)
    best = sorted(scores, key=lambda pk: (-scores[pk], pk))[:limit]
    documents = Document.objects.defer("content").in_bulk(best)
    return [(documents[pk], scores[pk]) for pk in best]
