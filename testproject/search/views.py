from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from testproject.search.finding import search
from testproject.search.models import Document


def index(request: HttpRequest) -> HttpResponse:
    """The search page."""
    query = request.GET.get("q", "")
    context = {
        "query": query,
        "found": search(query) if query else [],
        "total": Document.objects.exclude(indexed_at=None).count(),
    }
    return render(request, "search/index.html", context)
