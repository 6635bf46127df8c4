"""The demo on a PostgreSQL and a Valkey of its own: ``make demo-full``. Both end with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg

from tests import servers

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Start the servers, play the demo, stop them; the demo's exit code."""
    postgres, redis = servers.start_private_postgres(), servers.start_private_redis()
    try:
        with psycopg.connect(postgres.url(), autocommit=True) as admin:
            admin.execute("CREATE DATABASE django_jobs_demo")
        urls = {"DATABASE_URL": postgres.url("django_jobs_demo"), "LANES_URL": redis.url()}
        urls["DJANGO_SETTINGS_MODULE"] = "testproject.settings"
        print(f"{postgres.describe()}, {redis.describe()}\n", flush=True)
        command = [sys.executable, str(ROOT / "manage.py"), "demo", *sys.argv[1:]]
        return subprocess.run(command, env={**os.environ, **urls}, cwd=ROOT).returncode
    finally:
        redis.close()
        postgres.close()


if __name__ == "__main__":
    sys.exit(main())
