"""The search itself."""

import math
from collections import defaultdict

from testproject.search.jobs import WORD
from testproject.search.models import Document, Posting


def search(query: str, limit: int = 10) -> list[tuple[Document, float]]:
    """The documents that fit ``query`` best, with their scores; rare words weigh more."""
    words = {word.lower() for word in WORD.findall(query)}
    total = Document.objects.exclude(indexed_at=None).count()
    scores: dict[int, float] = defaultdict(float)
    for word in words:
        postings = list(Posting.objects.filter(word=word).select_related("document"))
        rarity = math.log(1 + total / (1 + len(postings)))
        for posting in postings:
            weight = posting.count / math.sqrt(1 + posting.document.length)
            scores[posting.document_id] += rarity * weight
    best = sorted(scores, key=lambda pk: (-scores[pk], pk))[:limit]
    documents = Document.objects.defer("content").in_bulk(best)
    return [(documents[pk], scores[pk]) for pk in best]
