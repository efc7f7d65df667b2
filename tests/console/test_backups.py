"""Backups in the console: who may, one at a time, what is said, and what the worker does."""

from __future__ import annotations

import html
import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest
from celery import states
from django.test import Client
from django_celery_results.models import TaskResult

from msgnode import tasks
from msgnode.celery import app
from msgnode.console import backups, roles
from msgnode.models import AuditEntry

from .accounts import as_role

PAGE = "/admin/backups/"
NAME = "localhost-20261129T041500Z.tar.gz"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """What the Celery worker is told."""
    heard: list[tuple[str, Any]] = []
    monkeypatch.setattr(app, "send_task", lambda name, args, **_: heard.append((name, args)))
    return heard


@pytest.fixture
def folder(settings: Any, tmp_path: Path) -> Path:
    settings.DATA_DIR = tmp_path
    (tmp_path / "backups").mkdir()
    return tmp_path / "backups"


@pytest.mark.django_db
@pytest.mark.parametrize("role", [roles.VIEWER, roles.OPERATOR, roles.AUTHOR])
def test_only_administrators_may(role: str, told: list[Any], folder: Path) -> None:
    client = as_role(role)
    assert client.get(PAGE).status_code == 403
    assert client.post(PAGE).status_code == 403
    assert told == []


def test_one_is_asked_for_at_a_time(operator: Client, told: list[Any], folder: Path) -> None:
    page = operator.post(PAGE, follow=True).content.decode()
    assert "waits for the Celery worker" in page
    page = operator.post(PAGE, follow=True).content.decode()
    assert "Another one is under way." in page
    assert told == [(tasks.back_up.name, [])]
    assert AuditEntry.objects.filter(action="backup", actor="operator").count() == 1
    TaskResult.objects.update(status=states.FAILURE)
    page = operator.post(PAGE, follow=True).content.decode()
    assert "the log of the Celery worker says why" in page
    assert len(told) == 2


def test_only_an_archive_of_the_folder_is_checked(
    operator: Client, told: list[Any], folder: Path
) -> None:
    (folder / NAME).write_bytes(b"x")
    for name in ("../node.sqlite3", "/etc/passwd", "other.tar.gz"):
        assert (
            "There is no archive"
            in operator.post(PAGE, {"check": name}, follow=True).content.decode()
        )
    operator.post(PAGE, {"check": NAME})
    assert told == [(tasks.check_backup.name, [NAME])]


def test_a_disk_is_not_filled_by_clicking(operator: Client, told: list[Any], folder: Path) -> None:
    for number in range(backups.KEPT):
        (folder / f"{number}.tar.gz").touch()
    assert "Move or delete some first" in operator.post(PAGE, follow=True).content.decode()
    assert told == []


def test_a_worker_that_cannot_be_told_leaves_nothing_under_way(
    operator: Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ConnectionRefusedError("no broker")

    monkeypatch.setattr(app, "send_task", fail)
    assert "no broker" in operator.post(PAGE, follow=True).content.decode()
    assert not TaskResult.objects.exists()


def test_a_damaged_archive_is_said_to_be_so(operator: Client, folder: Path) -> None:
    (folder / NAME).write_bytes(b"not an archive")
    found = tasks.check_backup(NAME)
    assert NAME in found["archive"] and "Nothing has changed." in found["fault"]
    TaskResult.objects.create(
        task_id="1", task_name=backups.CHECK_BACKUP, status=states.SUCCESS,
        result=json.dumps(found),
    )  # fmt: skip
    page = operator.get(PAGE).content.decode()
    assert "failed: " in page and "Nothing has changed." in page


def test_the_command_restores_what_has_passed_a_check_and_can_be_pasted(
    operator: Client, settings: Any, tmp_path: Path
) -> None:
    settings.DATA_DIR = tmp_path / "the node's"
    folder = settings.DATA_DIR / "backups"
    folder.mkdir(parents=True)

    def command() -> list[str]:
        page = html.unescape(operator.get(PAGE).content.decode())
        return shlex.split(page.partition('id="restore-command">')[2].partition("<")[0])

    for age, name in enumerate(("newest.tar.gz", "sound.tar.gz", "damaged.tar.gz")):
        (folder / name).touch()
        os.utime(folder / name, (1e9 - age, 1e9 - age))
    assert command() == ["manage.py", "restore", str(folder / "newest.tar.gz"), "--replace"]
    for name, fault in (("sound.tar.gz", ""), ("damaged.tar.gz", "It is damaged.")):
        TaskResult.objects.create(
            task_id=name, task_name=backups.CHECK_BACKUP, status=states.SUCCESS,
            result=json.dumps({"archive": name, "rows": {"session": 1}, "fault": fault}),
        )  # fmt: skip
    assert command() == ["manage.py", "restore", str(folder / "sound.tar.gz"), "--replace"]
