"""One PostgreSQL database, named by the environment; everything else as a project has it."""

import os

from testproject.settings import *  # noqa: F403
from testproject.settings import INSTALLED_APPS, database

DATABASES = {"default": database(os.environ["BENCH_DATABASE_URL"])}
INSTALLED_APPS = [*INSTALLED_APPS, "tests.benchmarks"]
DEBUG = False
