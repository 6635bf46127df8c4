"""Settings of the demo project. Nothing need be set: the default is a SQLite file.

- ``DATABASE_URL``: ``postgresql://user:password@host:port/name`` or ``sqlite:///path``.
- ``OTHER_DATABASE_URL``: a second alias, ``other``.
- ``REDIS_URL``: ``redis://host:port/0``; without it there is no cache.
- ``LANES_URL``: ``redis://host:port/0`` of the server that carries the lanes' signals, if any.
- ``TEST_DJANGO_JOBS``: a JSON object laid over ``DJANGO_JOBS``, for tests that start processes.
"""

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

BASE_DIR = Path(__file__).resolve().parent.parent


def sqlite(path: str | Path) -> dict[str, Any]:
    """A SQLite database that several processes may write to."""
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(path),
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL",
        },
    }


def database(url: str) -> dict[str, Any]:
    """The entry of ``DATABASES`` that ``url`` describes."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return sqlite(unquote(parts.path[1:]))
    if parts.scheme not in ("postgresql", "postgres"):
        raise ValueError(f"expected postgresql:// or sqlite:///, not {parts.scheme}://")
    options = dict(parse_qsl(parts.query))
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path[1:]),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": options.pop("host", None) or unquote(parts.hostname or ""),
        "PORT": options.pop("port", None) or str(parts.port or ""),
        "OPTIONS": options,
    }


SECRET_KEY = "only-for-the-demo-and-the-tests"
DEBUG = True
ALLOWED_HOSTS = ["*"]
USE_TZ = True
TIME_ZONE = "UTC"
ROOT_URLCONF = "testproject.urls"
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_jobs",
    "testproject.search",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

DATABASES = {
    "default": database(os.environ["DATABASE_URL"])
    if os.environ.get("DATABASE_URL")
    else sqlite(BASE_DIR / "demo.sqlite3"),
}
if os.environ.get("OTHER_DATABASE_URL"):
    DATABASES["other"] = database(os.environ["OTHER_DATABASE_URL"])


def cache(url: str) -> dict[str, Any]:
    """An entry of ``CACHES`` on the server at ``url``."""
    return {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url}


CACHES: dict[str, Any] = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
if os.environ.get("REDIS_URL"):
    CACHES["default"] = cache(os.environ["REDIS_URL"])
if os.environ.get("LANES_URL"):
    CACHES["lanes"] = cache(os.environ["LANES_URL"])

EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
EMAIL_FILE_PATH = Path(DATABASES["default"]["NAME"]).with_suffix(".mails")
if not EMAIL_FILE_PATH.is_absolute():
    EMAIL_FILE_PATH = BASE_DIR / EMAIL_FILE_PATH

DJANGO_JOBS: dict[str, Any] = {
    "LANES_CACHE": "lanes" if os.environ.get("LANES_URL") else None,
    **json.loads(os.environ.get("TEST_DJANGO_JOBS") or "{}"),
}
