"""One PostgreSQL database, named by the environment; everything else as a project has it."""

import os

from testproject.settings import *  # noqa: F403
from testproject.settings import DJANGO_JOBS, INSTALLED_APPS, database

DATABASES = {"default": database(os.environ["BENCH_DATABASE_URL"])}
INSTALLED_APPS = [*INSTALLED_APPS, "tests.benchmarks"]
DEBUG = False
if os.environ.get("BENCH_REDIS_URL"):
    CACHES = {
        "lanes": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": os.environ["BENCH_REDIS_URL"],
        }
    }
    DJANGO_JOBS = {**DJANGO_JOBS, "LANES_CACHE": "lanes"}
