from django.contrib import admin

from testproject.search.models import Document


@admin.register(Document)
class DocumentAdmin(admin.ModelAdmin):
    list_display = ("path", "length", "indexed_at")
    search_fields = ("path",)
    exclude = ("content",)
    readonly_fields = ("path", "length", "indexed_at")
