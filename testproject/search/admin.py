from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from testproject.search.models import Document


@admin.register(Document)
class DocumentAdmin(admin.ModelAdmin):
    list_display = ("path", "length", "indexed_at")
    search_fields = ("path",)
    exclude = ("content",)
    readonly_fields = ("path", "length", "indexed_at")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Document]:
        return super().get_queryset(request).defer("content")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False
