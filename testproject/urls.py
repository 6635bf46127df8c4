"""The search, and the admin where its jobs are seen."""

from django.contrib import admin
from django.urls import path

from testproject.search.views import index

urlpatterns = [
    path("admin/", admin.site.urls),
    path("", index, name="search"),
]
