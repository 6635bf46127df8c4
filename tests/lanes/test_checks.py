"""The checks of the server that carries lane signals: each speaks when it should, and only then."""

from __future__ import annotations

import time
from typing import Any

import pytest
import redis
from django.core.checks import run_checks

from django_jobs.lanes import wiring
from tests import servers

REDIS = "django_redis.cache.RedisCache"

pytestmark = pytest.mark.django_db(databases="__all__")


def found(deploy: bool = False) -> dict[str, Any]:
    messages = run_checks(include_deployment_checks=deploy)
    ours = [m for m in messages if str(m.id).startswith("django_jobs.")]
    return {m.id.split(".")[1]: m for m in ours}


@pytest.fixture
def carried_by(settings: Any) -> Any:
    """Sets the cache that carries the signals, beside a default one of another kind."""

    def carry(alias: str = "lanes", **cache: Any) -> None:
        default = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
        settings.CACHES = {"default": default}
        if cache:
            settings.CACHES = {"default": default, alias: cache}
        settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "LANES_CACHE": alias}

    yield carry
    wiring.forget()


def test_an_alias_of_its_own_is_well() -> None:
    assert found(deploy=True).keys().isdisjoint({"E020", "E021", "W020", "W021", "W022"})


def test_a_dedicated_alias_is_well(carried_by: Any) -> None:
    carried_by(BACKEND=REDIS, LOCATION="redis://127.0.0.1:1/5")
    assert not found()


def test_an_alias_that_does_not_exist_is_refused(carried_by: Any) -> None:
    carried_by("signals")
    message = found()["E020"].msg
    assert "'signals', which CACHES does not have. It has: default." in message


@pytest.mark.parametrize(
    "cache",
    [
        {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
        {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://x"},
        {"BACKEND": REDIS, "OPTIONS": {"CLIENT_CLASS": "django_redis.client.ShardClient"}},
    ],
    ids=["locmem", "django's own", "sharded"],
)
def test_a_cache_that_is_no_single_django_redis_server_is_refused(
    carried_by: Any, cache: dict[str, Any]
) -> None:
    carried_by(**cache)
    assert set(found()) == {"E021"}


def test_an_alias_shared_with_sessions_pages_or_another_cache_is_pointed_out(
    settings: Any, carried_by: Any
) -> None:
    carried_by(BACKEND=REDIS, LOCATION="redis://h/1")
    settings.SESSION_ENGINE = "django.contrib.sessions.backends.cache"
    settings.SESSION_CACHE_ALIAS = "lanes"
    assert "the sessions" in found()["W020"].msg
    settings.SESSION_ENGINE = "django.contrib.sessions.backends.db"
    settings.CACHE_MIDDLEWARE_ALIAS = "lanes"
    assert "W020" not in found()
    settings.MIDDLEWARE = ["django.middleware.cache.UpdateCacheMiddleware", *settings.MIDDLEWARE]
    assert "the cache middleware" in found()["W020"].msg
    settings.CACHE_MIDDLEWARE_ALIAS = "default"
    assert "W020" not in found()
    settings.CACHES = {**settings.CACHES, "pages": {"BACKEND": REDIS, "LOCATION": "redis://h/1"}}
    assert "'pages', which has the same LOCATION" in found()["W020"].msg


def test_the_default_cache_is_shared_by_its_nature(settings: Any, carried_by: Any) -> None:
    settings.CACHES = {"default": {"BACKEND": REDIS, "LOCATION": "redis://h/1"}}
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "LANES_CACHE": "default"}
    assert "the default cache" in found()["W020"].msg


def test_a_server_that_evicts_is_pointed_out_at_deploy_only(
    carried_by: Any, private_redis: servers.RedisServer
) -> None:
    """LAN-13"""
    carried_by(BACKEND=REDIS, LOCATION=private_redis.url())
    with redis.Redis.from_url(private_redis.url()) as client:
        assert "W021" not in found(deploy=True)
        client.config_set("maxmemory-policy", "volatile-lru")
    assert "maxmemory-policy volatile-lru" in found(deploy=True)["W021"].msg
    assert "W021" not in found()


def test_a_node_of_a_cluster_is_pointed_out(carried_by: Any) -> None:
    """LAN-08"""
    server = servers.start_private_redis(
        options=("--cluster-enabled", "yes", "--cluster-port", str(servers.free_port()))
    )
    try:
        carried_by(BACKEND=REDIS, LOCATION=server.url())
        assert "a node of a cluster" in found(deploy=True)["W022"].msg
    finally:
        server.close()


def test_a_server_that_is_away_or_hangs_holds_up_no_check(
    carried_by: Any, private_redis: servers.RedisServer
) -> None:
    carried_by(BACKEND=REDIS, LOCATION=private_redis.url())
    private_redis.freeze()
    began = time.monotonic()
    assert "W021" not in found(deploy=True)
    assert time.monotonic() - began < 3
    private_redis.thaw()
    private_redis.stop()
    assert "W021" not in found(deploy=True)
