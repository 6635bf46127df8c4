"""The demo project's settings with both engines at once, for tests and their subprocesses.

``default`` and ``other`` are PostgreSQL, ``sqlite`` is a SQLite file. ``NAME`` is the test
database's own name, so a worker that a test starts finds the same databases without being told
that it runs under test. tests/conftest.py sets the environment before Django is loaded.
"""

import json
import os
from typing import Any

from testproject.settings import *  # noqa: F403
from testproject.settings import INSTALLED_APPS, database, sqlite

_suffix = os.environ.get("TEST_DB_SUFFIX", "")


def _postgresql(name: str, **test: Any) -> dict[str, Any]:
    name += _suffix
    return {
        **database(os.environ["TEST_POSTGRES_URL"]),
        "NAME": name,
        "TEST": {"NAME": name, **test},
    }


DATABASES = {
    "default": _postgresql("test_django_jobs"),
    "other": _postgresql("test_django_jobs_other"),
    "sqlite": {
        **sqlite(os.environ["TEST_SQLITE_PATH"]),
        "TEST": {"NAME": os.environ["TEST_SQLITE_PATH"]},
    },
}
# What a test lays over the default database of the processes that it starts.
DATABASES["default"].update(json.loads(os.environ.get("TEST_DATABASE") or "{}"))
CACHES = {
    "default": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": os.environ["TEST_REDIS_URL"],
        "KEY_PREFIX": f"test{_suffix}",
    },
    "lanes": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": os.environ["TEST_REDIS_URL"],
    },
}

INSTALLED_APPS = [*INSTALLED_APPS, "tests.app"]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEBUG = False
