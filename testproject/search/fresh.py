"""The demo's own database file, made anew for each run."""

import sqlite3
from contextlib import closing
from pathlib import Path

from django.conf import settings
from django.db import connection

NAME = "demo.sqlite3"
SERVED = "django_jobs_demo"
"""The only name of a database on a server that the demo fills, and only when it is empty."""

MARK = 0x6A6F6273  # "jobs", as the file's application id.


class NotTheDemos(Exception):
    """The configured database is not one that the demo may delete."""


def remake() -> Path:
    """Delete the demo's database and leave an empty one; its path, or that of the file it is not.

    Raises ``NotTheDemos``.

    The demo also makes a superuser with a known password, so nothing else will do.
    """
    if connection.vendor == "postgresql" and connection.settings_dict["NAME"] == SERVED:
        if connection.introspection.table_names():
            raise NotTheDemos(f"{SERVED} is not empty; it is not touched.")
        return settings.BASE_DIR / NAME
    path = _own_file()
    connection.close()
    for ending in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as made:
        made.execute(f"PRAGMA application_id = {MARK}")
    return path


def _own_file() -> Path:
    name = connection.settings_dict["NAME"]
    if connection.vendor != "sqlite":
        raise NotTheDemos(
            f"{name} is {connection.display_name}; it is not touched. The demo deletes its "
            "database and makes a new one: unset DATABASE_URL."
        )
    path = Path(name)
    if path.name != NAME:
        raise NotTheDemos(f"{path} is not named {NAME}; it is not touched.")
    if path != settings.BASE_DIR / NAME and path.exists() and not _is_marked(path):
        raise NotTheDemos(f"{path} was not made by the demo; it is not touched.")
    return path


def _is_marked(path: Path) -> bool:
    uri = f"{path.absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as found:
            mark: int = found.execute("PRAGMA application_id").fetchone()[0]
    except sqlite3.DatabaseError:
        return False
    return mark == MARK
