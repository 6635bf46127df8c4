"""System checks of the server that carries lane signals.

=====  ==========================================================================
E020   ``LANES_CACHE`` names an alias that ``CACHES`` does not have
E021   that alias is no single server of django-redis
W020   something else empties or fills the same Redis database
W021   the server evicts keys when its memory is full (``check --deploy``)
W022   the server is a node of a cluster (``check --deploy``)
=====  ==========================================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.conf import settings as project
from django.core.cache import caches
from django.core.checks import CheckMessage, Error, Warning, register
from django.utils.module_loading import import_string

from django_jobs import conf
from django_jobs.errors import LanesUnavailable, SettingsError
from django_jobs.lanes import wiring

CACHE_SESSIONS = (
    "django.contrib.sessions.backends.cache",
    "django.contrib.sessions.backends.cached_db",
)
CACHE_MIDDLEWARE = "django.middleware.cache."


@register
def check_alias(**_: Any) -> list[CheckMessage]:
    """E020, E021: there is nothing that could carry signals."""
    alias = _alias()
    if alias is None:
        return []
    if alias not in caches.settings:
        return [
            Error(
                f"DJANGO_JOBS['LANES_CACHE'] names the cache {alias!r}, which CACHES does not "
                f"have. It has: {', '.join(sorted(caches.settings))}.",
                hint="Correct the name, or add a cache of its own for lane signals.",
                id="django_jobs.E020",
            )
        ]
    if not _is_one_server(caches.settings[alias]):
        return [
            Error(
                f"DJANGO_JOBS['LANES_CACHE'] names the cache {alias!r}, which is not a server "
                "of django-redis (or spreads its keys over several).",
                hint=f'Set CACHES[{alias!r}]["BACKEND"] to "django_redis.cache.RedisCache", '
                "with its default client.",
                id="django_jobs.E021",
            )
        ]
    return []


def _is_one_server(cache: dict[str, Any]) -> bool:
    from django_redis.cache import RedisCache
    from django_redis.client import ShardClient

    try:
        backend = import_string(cache.get("BACKEND", ""))
        client = cache.get("OPTIONS", {}).get("CLIENT_CLASS")
        sharded = client is not None and issubclass(import_string(client), ShardClient)
    except ImportError:
        return False
    return isinstance(backend, type) and issubclass(backend, RedisCache) and not sharded


@register
def check_sharing(**_: Any) -> list[CheckMessage]:
    """W020: ``clear()`` of django-redis empties the whole database, and lane keys with it."""
    alias = _alias()
    if alias is None or alias not in caches.settings:
        return []
    sharers = list(_sharers(alias))
    if not sharers:
        return []
    return [
        Warning(
            f"Lane signals share the cache {alias!r} with {', '.join(sharers)}: a clear() there "
            "deletes them, and then superseded jobs stop later.",
            hint="Give them an alias of their own, with another database number in its LOCATION, "
            "and name that in DJANGO_JOBS['LANES_CACHE'].",
            id="django_jobs.W020",
        )
    ]


def _sharers(alias: str) -> Iterator[str]:
    if alias == "default":
        yield "everything that uses the default cache"
    if project.SESSION_ENGINE in CACHE_SESSIONS and alias == project.SESSION_CACHE_ALIAS:
        yield "the sessions"
    cached_pages = any(name.startswith(CACHE_MIDDLEWARE) for name in project.MIDDLEWARE)
    if cached_pages and alias == project.CACHE_MIDDLEWARE_ALIAS:
        yield "the cache middleware"
    place = caches.settings[alias].get("LOCATION")
    for other, cache in sorted(caches.settings.items()):
        if other != alias and cache.get("LOCATION") == place and place:
            yield f"the cache {other!r}, which has the same LOCATION"


@register(deploy=True)
def check_server(**_: Any) -> list[CheckMessage]:
    """W021, W022: what only the server knows. One that does not answer is no finding."""
    alias = _alias()
    if alias is None or check_alias():
        return []
    server = wiring.server()
    try:
        told = server.info() if server is not None else {}
    except LanesUnavailable:
        return []
    found: list[CheckMessage] = []
    policy = str(told.get("maxmemory_policy", "noeviction"))
    if policy != "noeviction":
        found.append(
            Warning(
                f"The server of cache {alias!r} evicts keys when its memory is full "
                f"(maxmemory-policy {policy}); lane keys expire and so are among the first.",
                hint="Use a server with maxmemory-policy noeviction for lane signals.",
                id="django_jobs.W021",
            )
        )
    if int(told.get("cluster_enabled", 0)):
        found.append(
            Warning(
                f"The server of cache {alias!r} is a node of a cluster; lane signals reach only "
                "the lanes whose keys this node holds.",
                hint="Use a single server, or one behind Sentinel, for lane signals.",
                id="django_jobs.W022",
            )
        )
    return found


def _alias() -> str | None:
    """The alias, or nothing when E002 has the word."""
    try:
        return conf.current().lanes_cache
    except SettingsError:
        return None
