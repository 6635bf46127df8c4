"""The server and the key prefix that the settings name, made once per process."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from django.core.signals import setting_changed

from django_jobs import conf

if TYPE_CHECKING:
    from django_jobs.lanes.server import Server

_lock = threading.Lock()
_server: Server | None = None
_roots: dict[tuple[str, str], str] = {}


def server() -> Server | None:
    """The server of ``LANES_CACHE``; ``None`` when no alias is set."""
    global _server
    settings = conf.current()
    if settings.lanes_cache is None:
        return None
    wanted = (settings.lanes_cache, settings.lanes_timeout)
    made = _server
    if made is not None and (made.alias, made.timeout) == wanted:
        return made
    # The client library is loaded only where it is used: it takes as long as the rest together.
    from django_jobs.lanes.server import Server

    with _lock:
        if _server is None or (_server.alias, _server.timeout) != wanted:
            _server = Server(*wanted)
        return _server


def root() -> str:
    """What the names of all lane keys begin with: the prefix and this installation."""
    settings = conf.current()
    found = _roots.get((settings.lanes_prefix, settings.database))
    if found is None:
        # At the first use: `from django_jobs.lanes import Lane` works before django.setup().
        from django_jobs.models.deployment import deployment_key

        found = f"{settings.lanes_prefix}:{deployment_key(settings.database)}"
        _roots[settings.lanes_prefix, settings.database] = found
    return found


def forget() -> None:
    """Close the connections and read the settings and the installation's name again."""
    global _server
    with _lock:
        made, _server = _server, None
        _roots.clear()
    if made is not None:
        made.close()


def _settings_changed(*, setting: str, **_: object) -> None:
    if setting in ("DJANGO_JOBS", "CACHES"):
        forget()


setting_changed.connect(_settings_changed, dispatch_uid="django_jobs.lanes.wiring")
