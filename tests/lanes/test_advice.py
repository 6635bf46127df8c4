"""What jobs hear of their lanes: with a server, and above all without one."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from typing import Any

import pytest
import redis

from django_jobs.lanes import Lane, advice, wiring
from django_jobs.lanes.advice import Advice, Claim
from tests import servers
from tests.lanes.looking import held_by, tombstone


def claim(token: int, key: str = "doc", delay: float = 0.0) -> Claim:
    return Claim("index", "acme", key, uuid.uuid4(), token, delay)


@pytest.fixture
def key() -> str:
    return uuid.uuid4().hex


def test_a_published_job_holds_its_lane_and_buries_the_older_one(
    lane_server: servers.RedisServer, raw: redis.Redis, key: str
) -> None:
    lane, old, new = Lane("index", "acme", key), claim(1, key), claim(2, key)
    advice.claim_many([old])
    assert advice.start(old) is Advice.GO
    advice.claim_many([new])
    assert held_by(lane) == str(new.job_id)
    assert tombstone(lane, raw, str(old.job_id)) == str(new.job_id)
    assert advice.beat([old, new]) == {old.job_id}
    assert advice.start(old) is Advice.LOOK
    advice.finish([new])
    assert held_by(lane) is None
    assert advice.start(old) is Advice.LOOK


def test_a_delayed_job_holds_its_lane_until_it_is_due(
    lane_server: servers.RedisServer, raw: redis.Redis, key: str
) -> None:
    """82, 128, S7: the remaining delay counts."""
    advice.claim_many([claim(1, key, delay=900.5)])
    assert 1199 < raw.ttl(Lane("index", "acme", key).keys().lane) <= 1201


def test_of_a_batch_only_the_newest_of_each_lane_is_told(
    lane_server: servers.RedisServer, raw: redis.Redis, key: str
) -> None:
    """The others were superseded when the batch was published."""
    running, batch, other = claim(1, key), [claim(n, key) for n in (3, 4, 2)], claim(5, key + "x")
    advice.start(running)
    advice.claim_many([*batch, other])
    lane = Lane("index", "acme", key)
    assert held_by(lane) == str(batch[1].job_id)
    assert held_by(Lane("index", "acme", key + "x")) == str(other.job_id)
    assert raw.hlen(lane.keys().lane) == 2
    assert tombstone(lane, raw, str(running.job_id)) == str(batch[1].job_id)


@pytest.mark.parametrize(
    "values",
    [
        {"token": -1},
        {"token": 1.5},
        {"delay": -1},
        {"delay": float("nan")},
        {"lane": ""},
        {"name": ""},
    ],
    ids=str,
)
def test_a_claim_that_cannot_be_is_refused_where_it_is_made(values: dict[str, Any]) -> None:
    """12, 16"""
    known = {"name": "n", "tenant": "", "lane": "l", "job_id": uuid.uuid4(), "token": 1}
    with pytest.raises(ValueError, match=r"is|empty"):
        Claim(**{**known, **values})


def test_a_hundred_beats_are_one_round_trip(
    lane_server: servers.RedisServer, raw: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = [claim(1, uuid.uuid4().hex) for _ in range(100)]
    advice.beat(claims)  # Connects, and loads the script.
    server = wiring.server()
    assert server is not None
    (connection,) = server.client().connection_pool._available_connections
    sent: list[int] = []
    real = connection.send_packed_command
    monkeypatch.setattr(
        connection, "send_packed_command", lambda *a, **k: (sent.append(1), real(*a, **k))[1]
    )
    assert advice.beat(claims) == set()
    assert len(sent) == 1


@pytest.mark.parametrize(("claimed", "finished"), [(1000, 2000), (7, None), (1000, None), (6, 7)])
def test_a_key_of_another_history_is_claimed_anew_when_the_row_says_so(
    lane_server: servers.RedisServer,
    raw: redis.Redis,
    key: str,
    caplog: pytest.LogCaptureFixture,
    claimed: int,
    finished: int | None,
) -> None:
    """After a restore of the database the sequence of tokens starts lower."""
    foreign, ours, newer = claim(claimed, key), claim(7, key), claim(8, key)
    advice.claim_many([foreign])
    if finished is not None:
        advice.finish([claim(finished, key)])
    advice.claim_many([foreign])
    advice.claim_many([ours])
    assert advice.start(ours) is Advice.LOOK
    advice.reclaim([ours])
    assert "lane key from another history" in caplog.text
    assert advice.beat([ours]) == set()
    assert advice.start(ours) is Advice.GO
    assert held_by(Lane("index", "acme", key)) == str(ours.job_id)
    advice.claim_many([newer])
    assert advice.beat([ours]) == {ours.job_id}


def test_a_foreign_key_harms_its_own_lane_only_and_is_logged_once(
    lane_server: servers.RedisServer,
    raw: redis.Redis,
    key: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """22"""
    good, bad = claim(1, key), claim(1, key + "x")
    raw.set(Lane("index", "acme", key + "x").keys().lane, "mine")
    for _ in range(3):
        assert advice.beat([bad, good]) == set()
    assert held_by(Lane("index", "acme", key)) == str(good.job_id)
    assert advice.available()
    (record,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert Lane("index", "acme", key + "x").keys().lane in record.getMessage()


# --- without a server


def talk() -> tuple[Advice, set[uuid.UUID]]:
    """Every kind of call, once, about a lane of its own."""
    one = claim(1, uuid.uuid4().hex)
    advice.claim_many([one])
    answer = advice.start(one), advice.beat([one])
    advice.reclaim([one])
    advice.finish([one])
    return answer


SILENCE = (Advice.GO, set[uuid.UUID]())


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged about the server."""
    said = [r.getMessage() for r in caplog.records if r.name == "django_jobs.lanes"]
    return [line for line in said if "another history" not in line]


def test_without_a_server_every_job_goes_on(signals: Any, caplog: pytest.LogCaptureFixture) -> None:
    """47, 62, 89, R48"""
    signals(None)
    assert talk() == SILENCE
    assert not advice.available()
    assert not lines(caplog)


def test_a_refused_connection_costs_one_try_and_one_line(
    signals: Any, private_redis: servers.RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """47, 62, 89"""
    private_redis.stop()
    signals(private_redis)
    began = time.monotonic()
    for _ in range(200):
        assert talk() == SILENCE
    assert time.monotonic() - began < 0.25
    assert not advice.available()
    (line,) = lines(caplog)
    assert "lane signals are away: ConnectionError" in line


def test_a_server_that_hangs_costs_the_timeout_once(
    signals: Any, private_redis: servers.RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """89"""
    signals(private_redis)
    talk()
    private_redis.freeze()
    try:
        began = time.monotonic()
        advice.claim_many([claim(1)])
        first = time.monotonic() - began
        for _ in range(200):
            assert talk() == SILENCE
        assert 0.2 < first < 0.35
        assert time.monotonic() - began < 0.5
    finally:
        private_redis.thaw()
    (line,) = lines(caplog)
    assert "Timeout" in line


def test_a_server_that_hangs_before_the_first_connection_costs_the_timeout_once(
    signals: Any, private_redis: servers.RedisServer
) -> None:
    """89: the kernel accepts the connection, and nobody answers the handshake."""
    signals(private_redis, LANES_TIMEOUT=0.1)
    Lane("warm", "", "up").holder()
    wiring.forget()
    private_redis.freeze()
    try:
        began = time.monotonic()
        assert talk() == SILENCE
        assert 0.08 < time.monotonic() - began < 0.2
    finally:
        private_redis.thaw()


def test_a_server_that_drips_costs_the_timeout_once(signals: Any, settings: Any) -> None:
    """A byte now and then restarts the timeout of a socket, but not ours."""
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        over = threading.Event()

        def drip() -> None:
            peer, _ = listener.accept()
            with peer:
                while not over.wait(0.05):
                    try:
                        peer.sendall(b"+")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        settings.CACHES = {
            **settings.CACHES,
            "lanes": {
                "BACKEND": "django_redis.cache.RedisCache",
                "LOCATION": f"redis://127.0.0.1:{listener.getsockname()[1]}/3",
            },
        }
        signals(None)
        settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "LANES_CACHE": "lanes"}
        began = time.monotonic()
        assert advice.start(claim(1)) is Advice.GO
        took = time.monotonic() - began
        over.set()
        thread.join()
    assert 0.2 < took < 0.35


def test_the_end_of_an_outage_is_noticed_and_told_once(
    signals: Any,
    private_redis: servers.RedisServer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """62, LAN-12: with the scripts gone, and the connections too."""
    signals(private_redis)
    server = wiring.server()
    assert server is not None
    server.breaker._cool_down = 0.0
    caplog.set_level(logging.INFO, "django_jobs.lanes")
    talk()
    private_redis.stop("immediate")
    for _ in range(3):
        talk()
    assert not advice.available()
    private_redis.start()
    deadline = time.monotonic() + 10
    while not advice.available():
        talk()
        assert time.monotonic() < deadline
    assert talk() == SILENCE
    away, back = lines(caplog)
    assert "are away" in away
    assert "are back after" in back


def test_more_claims_than_can_be_told_in_time_are_no_outage(
    signals: Any, private_redis: servers.RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest is left to the heartbeats."""
    signals(private_redis, LANES_TIMEOUT=0.2)
    monkeypatch.setattr(advice, "CHUNK", 1)
    claims = [claim(1, uuid.uuid4().hex) for _ in range(3000)]
    talk()
    began = time.monotonic()
    advice.claim_many(claims)
    assert time.monotonic() - began < 0.3
    assert advice.available()
    assert held_by(Lane("index", "acme", claims[0].lane)) is not None
    assert held_by(Lane("index", "acme", claims[-1].lane)) is None


def test_in_an_outage_one_caller_tries_for_all(
    signals: Any, private_redis: servers.RedisServer
) -> None:
    """However many threads publish, one of them waits."""
    signals(private_redis)
    talk()
    private_redis.freeze()
    try:
        advice.claim_many([claim(1)])
        server = wiring.server()
        assert server is not None
        server.breaker._next_try = 0.0
        waits: list[float] = []
        barrier = threading.Barrier(8)

        def publish() -> None:
            barrier.wait()
            began = time.monotonic()
            advice.claim_many([claim(1)])
            waits.append(time.monotonic() - began)

        threads = [threading.Thread(target=publish) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(wait > 0.15 for wait in waits) == 1
    finally:
        private_redis.thaw()


def test_flushed_scripts_are_loaded_again_within_the_call(
    signals: Any, private_redis: servers.RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """LAN-06: in pipelines too, and each script is executed once."""
    signals(private_redis)
    claims = [claim(1, uuid.uuid4().hex) for _ in range(20)]
    for _ in range(3):
        with redis.Redis.from_url(private_redis.url()) as client:
            client.script_flush()
        advice.claim_many(claims)
        assert advice.beat(claims) == set()
    assert held_by(Lane("index", "acme", claims[7].lane)) == str(claims[7].job_id)
    assert not lines(caplog)


def test_a_flushed_server_is_told_of_running_jobs_by_their_beats(
    signals: Any, private_redis: servers.RedisServer
) -> None:
    """55, R19, R45, R46"""
    signals(private_redis)
    old, new = claim(1, "flushed"), claim(2, "flushed")
    advice.claim_many([old])
    advice.claim_many([new])
    with redis.Redis.from_url(private_redis.url()) as client:
        client.flushall()
    assert advice.start(old) is Advice.GO
    assert advice.beat([new]) == set()
    assert advice.beat([old]) == {old.job_id}


def test_a_read_only_replica_is_an_outage_and_no_error(
    signals: Any, private_redis: servers.RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """LAN-12: after a failover the old primary answers like this."""
    signals(private_redis)
    talk()
    with redis.Redis.from_url(private_redis.url()) as client:
        client.replicaof("127.0.0.1", 1)
        assert talk() == SILENCE
        assert not advice.available()
        (line,) = lines(caplog)
        assert "read only replica" in line or "READONLY" in line
        client.replicaof("NO", "ONE")
    server = wiring.server()
    assert server is not None
    server.breaker._next_try = 0.0
    talk()
    assert advice.available()


def test_a_full_server_is_an_outage_and_no_error(
    signals: Any, private_redis: servers.RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """noeviction refuses writes."""
    signals(private_redis)
    talk()
    with redis.Redis.from_url(private_redis.url()) as client:
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", 1)
        assert talk() == SILENCE
    (line,) = lines(caplog)
    assert "OutOfMemory" in line or "OOM" in line


def test_evicted_lanes_come_back_with_the_next_beat(
    signals: Any, private_redis: servers.RedisServer
) -> None:
    """LAN-13: keys with an expiry are the first to go."""
    signals(private_redis, LANES_TIMEOUT=5.0)
    running = [claim(2, uuid.uuid4().hex) for _ in range(20)]
    advice.claim_many(running)
    with redis.Redis.from_url(private_redis.url()) as client:
        client.config_set("maxmemory-policy", "allkeys-random")
        used = client.info("memory")["used_memory"]
        client.config_set("maxmemory", used + 300_000)
        for n in range(2000):
            client.set(f"filler {n}", "x" * 500)
        assert client.info("stats")["evicted_keys"] > 0
        client.config_set("maxmemory", 0)
    assert advice.beat(running) == set()
    assert {held_by(Lane("index", "acme", c.lane)) for c in running} == {
        str(c.job_id) for c in running
    }


def test_killed_connections_are_replaced_within_the_call(
    signals: Any, private_redis: servers.RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """LAN-12: an idle connection that the server closed is no outage."""
    signals(private_redis)
    talk()
    for _ in range(5):
        with redis.Redis.from_url(private_redis.url()) as client:
            client.client_kill_filter(_type="normal", skipme=True)
        talk()
        assert advice.available()
    assert not lines(caplog)
    with redis.Redis.from_url(private_redis.url()) as client:
        assert len(client.client_list(_type="normal")) <= 2


def test_an_alias_that_does_not_exist_is_an_outage_and_no_error(
    signals: Any, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    signals(None)
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "LANES_CACHE": "nowhere"}
    assert talk() == SILENCE
    (line,) = lines(caplog)
    assert "nowhere" in line


def test_a_password_never_reaches_the_log(
    signals: Any,
    settings: Any,
    private_redis: servers.RedisServer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with redis.Redis.from_url(private_redis.url()) as client:
        client.config_set("requirepass", "right")
    signals(private_redis)
    url = private_redis.url().replace("redis://", "redis://:hunter2@")
    settings.CACHES = {**settings.CACHES, "lanes": {**settings.CACHES["lanes"], "LOCATION": url}}
    assert talk() == SILENCE
    (line,) = lines(caplog)
    assert "hunter2" not in caplog.text
    assert "password" in line or "AuthenticationError" in line
