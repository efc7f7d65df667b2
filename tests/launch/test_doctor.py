"""The doctor names what is wrong with a node and what to do, and says nothing of a whole one."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import sqlite3
import ssl
import subprocess
import threading
import time
from contextlib import closing
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import redis
from django.core.management import CommandError, call_command
from django.utils import timezone

from msgnode.launch import doctor
from msgnode.models import Alarm, ProviderKey, Worker
from msgnode.resources import version
from tests.certificates import certificate
from tests.node import ROOT, Node
from tests.ports import free_port
from tests.redis.servers import RedisServer
from tests.waiting import until

Found = dict[str, list[tuple[str, str, str]]]


def told(text: str) -> Found:
    """State, text and remedy of what was found, by part."""
    found: Found = {}
    for each in json.loads(text):
        found.setdefault(each["part"], []).append((each["state"], each["text"], each["remedy"]))
    return found


def examined(node: Node) -> Found:
    """What the command says of a node that is broken: its status is 1."""
    with pytest.raises(subprocess.CalledProcessError) as failed:
        node.manage("doctor", "--json")
    assert failed.value.returncode == 1
    assert "Traceback" not in failed.value.stderr
    return told(failed.value.stdout)


def looked(part: str) -> list[tuple[str, str, str]]:
    return [(each.state, each.text, each.remedy) for each in doctor.look() if each.part == part]


def test_of_a_node_that_is_whole_nothing_is_wrong(node: Node) -> None:
    try:
        found = told(node.manage("doctor", "--json"))
    except subprocess.CalledProcessError as failed:
        pytest.fail(failed.stdout)
    wrong = {part: seen for part, seen in found.items() if any(each[0] == "wrong" for each in seen)}
    assert wrong == {}, "and the status is 0"
    assert found["port"] == [("well", "as it should be", "")]
    ((state, text, remedy),) = found["backups"]
    assert (state, bool(remedy)) == ("warning", True) and "there is none" in text
    for part in ("database", "settings", "secrets", "disk", "redis", "clocks", "tls"):
        assert [state for state, _, _ in found[part]] == ["well"], part


class Broken:
    """A node's directory; each method breaks the node in one way, and returns its settings."""

    def __init__(self, place: Path, template: Path) -> None:
        self.place = place
        self.database = place / "node.sqlite3"
        shutil.copy(template, self.database)

    def redis(self) -> dict[str, object]:
        return {"REDIS_URL": f"redis://:hunter2@127.0.0.1:{free_port()}/0"}

    def database_away(self) -> dict[str, object]:
        return {"DATABASE_URL": f"postgres://node:hunter2@127.0.0.1:{free_port()}/node"}

    def database_damaged(self) -> dict[str, object]:
        with closing(sqlite3.connect(self.database)) as rows:
            sql = "SELECT rootpage FROM sqlite_master WHERE name = 'django_migrations'"
            (page,), (size,) = (rows.execute(each).fetchone() for each in (sql, "PRAGMA page_size"))
        with self.database.open("r+b") as file:
            file.seek((page - 1) * size)
            file.write(os.urandom(size))
        return {}

    def disk(self) -> dict[str, object]:
        return {"RECORD_MIN_FREE_BYTES": 2**60}

    def backups(self) -> dict[str, object]:
        (self.place / "backups").mkdir()
        archive = self.place / "backups" / "old.tar.gz"
        archive.touch()
        os.utime(archive, (time.time() - 30 * 86_400,) * 2)
        return {}


@pytest.mark.parametrize(
    ("fault", "part", "state", "text", "remedy"),
    [
        ("redis", "redis", "wrong", "cannot be reached", "Start it, or correct REDIS_URL"),
        ("database_away", "database", "wrong", "refused", "Start it, or correct DATABASE_URL"),
        ("database_damaged", "database", "wrong", "damaged", "manage.py restore BACKUP --replace"),
        ("disk", "disk", "wrong", "the traffic is not recorded", "Make room"),
        ("backups", "backups", "warning", "30 days old", "manage.py backup"),
    ],
)
def test_of_five_broken_nodes_it_is_said_what_is_wrong_and_what_to_do(
    tmp_path: Path, template: Path, fault: str, part: str, state: str, text: str, remedy: str
) -> None:
    node = Node(tmp_path, **getattr(Broken(tmp_path, template), fault)())
    found = told(node.manage("doctor", "--json")) if state == "warning" else examined(node)
    ((seen, said, advice),) = found[part]
    assert (seen, text in said, remedy in advice) == (state, True, True), (said, advice)
    assert "hunter2" not in said
    others = [(each, *seen) for each, lines in found.items() if each != part for seen in lines]
    assert not [each for each in others if each[1] == "wrong"], "nothing else is blamed"
    assert not [each for each in others if each[1] == "warning" and not each[3]], "no line is idle"


def test_a_place_that_cannot_be_written_is_named_with_who_cannot(settings: Any) -> None:
    settings.DATA_DIR = Path("/sys/kernel")  # where not even root may make a file
    ((state, text, remedy),) = looked("disk")
    assert (state, text) == (
        "wrong", "nothing can be written in DATA_DIR /sys/kernel: Permission denied",
    )  # fmt: skip
    assert re.match(r"Let \S+ write there, or name another DATA_DIR", remedy)


def test_a_setting_that_cannot_work_and_a_database_of_an_earlier_version_are_named(
    tmp_path: Path, template: Path
) -> None:
    shutil.copy(template, tmp_path / "node.sqlite3")
    last = max(each.stem for each in (ROOT / "msgnode/migrations").glob("0*.py"))
    with closing(sqlite3.connect(tmp_path / "node.sqlite3")) as rows:
        rows.execute("DELETE FROM django_migrations WHERE app = 'msgnode' AND name = ?", [last])
        rows.commit()
    found = examined(Node(tmp_path, RESUME="never"))
    ((state, text, _),) = found["settings"]
    assert state == "wrong" and text.startswith("msgnode.E003")
    ((state, text, remedy),) = found["database"]
    assert state == "wrong" and "1 migrations are missing: msgnode." in text
    assert "migrate" in remedy


def test_without_a_database_none_is_made(tmp_path: Path) -> None:
    found = told(Node(tmp_path).manage("doctor", "--json"))
    assert found["database"][0][:2] == ("warning", "there is none yet")
    assert not (tmp_path / "node.sqlite3").exists()


@pytest.mark.parametrize("fault", ["away", "evicts", "full", "cannot save"])
def test_what_is_wrong_with_redis_is_named(tmp_path: Path, settings: Any, fault: str) -> None:
    server = RedisServer(tmp_path)
    server.start()
    try:
        with redis.Redis(port=server.port) as client:
            if fault == "evicts":
                client.config_set("maxmemory", "100mb")
                client.config_set("maxmemory-policy", "allkeys-lru")
            elif fault == "full":
                client.config_set("maxmemory", int(client.info("memory")["used_memory"] * 1.08))
            elif fault == "cannot save":
                (tmp_path / "dump.rdb").mkdir()  # a disk that takes nothing
                client.bgsave()
                until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err", 20)
        if fault == "away":
            server.stop()
        settings.REDIS_URL = server.url
        ((state, text, remedy),) = looked("redis")
    finally:
        server.stop()
    wanted = {
        "away": ("wrong", "cannot be reached", "REDIS_URL"),
        "evicts": ("wrong", "set it to noeviction", ""),
        "full": ("warning", "it holds", "maxmemory"),
        "cannot save": ("wrong", "could not write", "turn its saving off"),
    }[fault]
    assert state == wanted[0] and wanted[1] in text and wanted[2] in remedy, (text, remedy)


@pytest.mark.django_db(transaction=True)  # the connection is closed in between
def test_secrets_that_no_key_opens_and_those_that_need_a_former_key_are_counted(
    settings: Any,
) -> None:
    from msgnode.identity.encryption import encrypt

    former = settings.SECRET_KEY
    now = timezone.now()
    ProviderKey.objects.create(kid="one", sealed=encrypt("a key"), public={}, signs_from=now)
    settings.KEY_ENCRYPTION_KEY, settings.SECRET_KEY = "", "another key, which is long enough"
    ((state, text, remedy),) = looked("secrets")
    assert (state, text) == ("wrong", "no key reads 1 of 1 signing keys of the provider")
    assert "SECRET_KEY_FALLBACKS" in remedy
    settings.SECRET_KEY_FALLBACKS = [former]
    ((state, text, remedy),) = looked("secrets")
    assert state == "warning" and "--encrypt-anew" in remedy, text


@pytest.mark.django_db(transaction=True)
def test_a_silent_worker_of_another_version_and_alarms_also_of_a_peer_are_named(
    tmp_path: Path, settings: Any
) -> None:
    settings.DATA_DIR = tmp_path
    long_ago = timezone.now() - timedelta(hours=1)
    Worker.objects.create(
        epoch="e", name="host:1", host="h", pid=1, state="ready", version="0.9.0",
        seen_at=long_ago, lease_until=long_ago, sessions=7,
    )  # fmt: skip
    Alarm.objects.create(kind="redis-away", subject="s", text="nobody answers")
    Alarm.objects.create(kind="peer-stuck", subject="b.example", text="b.example takes nothing")
    found = told(_said())
    silent, other = found["workers"]
    assert silent[:2] == ("wrong", "host:1 is not heard of, with 7 sessions")
    assert other[0] == "warning" and "0.9.0" in other[1] and "restart" in other[2]
    redis_away, peer_stuck = sorted(found["alarms"], key=lambda each: "takes nothing" in each[1])
    assert redis_away[0] == peer_stuck[0] == "warning"
    assert "nobody answers" in redis_away[1] and redis_away[2]
    assert "b.example takes nothing" in peer_stuck[1] and "the other domain" in peer_stuck[2]


@pytest.mark.django_db(transaction=True)
def test_a_worker_whose_first_renewal_is_due_is_no_fault() -> None:
    soon = timezone.now() + timedelta(minutes=1)
    Worker.objects.create(
        epoch="e", name="host:1", host="h", pid=1, state="starting", version=version(),
        seen_at=timezone.now(), lease_until=soon,
    )  # fmt: skip
    ((state, text, remedy),) = looked("workers")
    assert (state, text) == ("warning", "host:1 is starting, with 0 sessions")
    assert "Ask again" in remedy


def _said() -> str:
    out = StringIO()
    with pytest.raises(CommandError) as wrong:
        call_command("doctor", "--json", stdout=out)
    assert wrong.value.returncode == 1
    return out.getvalue()


@pytest.mark.django_db
def test_somebody_else_at_the_port_is_named(settings: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        settings.HOST, settings.PORT = server.getsockname()
        server.settimeout(20)

        def answer() -> None:
            there, _ = server.accept()
            there.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
            there.close()

        other = threading.Thread(target=answer)
        other.start()
        ((state, text, _),) = looked("port")
        other.join()
    assert (state, text) == ("wrong", f"what listens at port {settings.PORT} is no worker")


@pytest.mark.django_db
@pytest.mark.parametrize("is_trusted", [True, False])
def test_a_certificate_that_ends_soon_or_is_not_trusted_is_named(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch, is_trusted: bool
) -> None:
    chain, key, _ = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    if is_trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(chain))
    with socket.create_server(("127.0.0.1", 0)) as server:
        settings.PUBLIC_URL = f"https://127.0.0.1:{server.getsockname()[1]}"
        server.settimeout(20)

        def answer() -> None:
            there, _ = server.accept()
            try:
                context.wrap_socket(there, server_side=True).close()
            except OSError:
                there.close()

        other = threading.Thread(target=answer)
        other.start()
        ((state, text, remedy),) = looked("tls")
        other.join()
    expected = ("warning", "ends in 0 days") if is_trusted else ("wrong", "do not trust")
    assert state == expected[0] and expected[1] in text and remedy, text


@pytest.mark.long
def test_of_postgresql_missing_connections_and_a_clock_that_differs_are_named(
    tmp_path: Path, migrated_url: str
) -> None:
    found = told(
        Node(tmp_path, DATABASE_URL=migrated_url, REQUEST_THREADS=90).manage("doctor", "--json")
    )
    ((state, text, remedy),) = found["database"]
    assert state == "warning" and "may need 215 connections" in text, text
    assert "REQUEST_THREADS" in remedy
    assert found["clocks"][0][0] == "well"


@pytest.mark.django_db
def test_a_part_that_fails_keeps_no_other_from_being_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails() -> Any:
        raise OSError("no such thing")

    monkeypatch.setattr(doctor, "_disk", fails)
    ((state, text, remedy),) = looked("disk")
    assert (state, text) == ("warning", "could not be looked at: OSError: no such thing")
    assert "report the error" in remedy
    assert looked("settings")
