"""What stands before the programs start, and how often it may be repeated."""

import os
import re
import resource
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from msgnode.launch import prepare
from msgnode.launch.error_messages import StartFailed
from msgnode.resources import version
from tests.node import ROOT, Node


def test_the_directory_is_held_by_one_and_free_afterwards(tmp_path: Path) -> None:
    said = f"already runs .* \\(process {os.getpid()}\\)"
    with prepare.hold(tmp_path, 0), pytest.raises(StartFailed, match=said):
        prepare.hold(tmp_path, 0)
    prepare.hold(tmp_path, 0).close()


def test_a_directory_that_is_made_is_for_its_owner_alone(tmp_path: Path) -> None:
    prepare.hold(tmp_path / "new", 0).close()
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


def test_remains_that_do_not_stop_are_named(tmp_path: Path) -> None:
    with prepare.hold(tmp_path, 0) as lock:
        lock.truncate(0)  # its launcher is gone
        with pytest.raises(StartFailed, match="earlier node .* have not stopped"):
            prepare.hold(tmp_path, 0)


def test_a_directory_of_somebody_else_is_named_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret_key").touch()
    prepare.check_owner(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000_000)
    with pytest.raises(StartFailed, match="secret_key belongs to .* user 4000000000. Start as"):
        prepare.check_owner(tmp_path)


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("no small file system can be mounted here")
    try:
        with pytest.raises(StartFailed, match=f"the disk of DATA_DIR {tmp_path} is full"):
            prepare.check_disk(tmp_path)
        assert list(tmp_path.iterdir()) == []
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_mailboxes_of_the_dead_go_and_tasks_stay(tmp_path: Path) -> None:
    prepare.hold(tmp_path, 0).close()
    queue = tmp_path / "celery" / "queue"
    (queue / "1_a.node@h.celery.pidbox.msg").touch()
    (queue / "2_b.celery.msg").touch()
    (tmp_path / "celery" / "control" / "celery.pidbox.exchange").touch()
    prepare.clear_remains(tmp_path)
    assert [file.name for file in queue.iterdir()] == ["2_b.celery.msg"]
    assert list((tmp_path / "celery" / "control").iterdir()) == []


def test_the_limit_of_open_files_is_raised_to_what_the_system_allows() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        prepare.raise_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= min(soft, 1_048_576)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_database_that_has_become_empty_is_not_taken_for_a_new_one(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DATA_DIR = tmp_path
    of_sqlite = SimpleNamespace(vendor="sqlite", settings_dict={"NAME": tmp_path / "node.sqlite3"})
    monkeypatch.setattr(prepare, "connection", of_sqlite)
    (tmp_path / "node.sqlite3").touch()
    (tmp_path / "prepared.json").touch()
    with pytest.raises(StartFailed, match="node.sqlite3 is empty, and was not.*restore"):
        prepare.check_database()


@pytest.mark.parametrize("host", ["192.0.2.1", "not a host"])
def test_an_address_that_is_not_ours_is_named(host: str) -> None:
    with pytest.raises(StartFailed, match=f"cannot listen on {host} port 8000"):
        prepare.check_port(host, 8000)


@pytest.mark.django_db(transaction=True)  # the connection is closed in between
def test_the_operator_is_made_once() -> None:
    said: list[str] = []
    prepare.make_operator(said.append)
    prepare.make_operator(said.append)
    assert len(said) == 1
    operator = get_user_model().objects.get(is_superuser=True)
    assert operator.username == "operator"
    password = said[0].split("password ")[1].split()[0]
    assert operator.check_password(password)


@pytest.mark.django_db
def test_an_operator_of_your_own_is_enough(admin_user: object) -> None:
    said: list[str] = []
    prepare.make_operator(said.append)
    assert said == []


@pytest.mark.long
def test_an_upgrade_says_from_which_version_to_which_its_steps_and_its_time(
    tmp_path: Path, template: Path
) -> None:
    shutil.copy(template, tmp_path / "node.sqlite3")
    node = Node(tmp_path)
    *_, before, last = sorted(each.stem for each in (ROOT / "msgnode/migrations").glob("0*.py"))
    node.manage("migrate", "msgnode", before)
    code = "from msgnode.launch import prepare; prepare.migrate({!r}, print)"
    said = node.manage("shell", "-v0", "-c", code.format("0.0.9")).splitlines()
    assert said[0] == f"upgrading the database from version 0.0.9 to version {version()}: 1 step"
    assert said[1] == f"  step 1 of 1: msgnode.{last}"
    assert re.fullmatch(r"the database is upgraded: 1 step, \d+\.\d s", said[2])
    assert node.manage("shell", "-v0", "-c", code.format("0.0.9")) == "", "there is nothing to do"
