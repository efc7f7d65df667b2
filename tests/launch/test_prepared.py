"""What an earlier start has done is not done again, unless something is another now."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.contrib.auth import get_user_model
from django.db import connection

from msgnode.launch import prepared

pytestmark = pytest.mark.django_db(transaction=True)  # the connection is closed in between


@pytest.fixture
def noted(tmp_path: Path) -> Iterator[Path]:
    get_user_model().objects.create_superuser(username="olga", password="a long enough phrase")
    prepared.note(tmp_path)
    yield tmp_path


def test_nothing_is_known_at_the_first_start(tmp_path: Path) -> None:
    assert not prepared.is_known(tmp_path)


def test_what_was_noted_is_known_and_for_its_owner_only(noted: Path) -> None:
    assert prepared.is_known(noted)
    assert stat.S_IMODE((noted / "prepared.json").stat().st_mode) == 0o600
    assert [path.name for path in noted.iterdir()] == ["prepared.json"]


@pytest.mark.parametrize("text", ["", "[]", "{}", "nonsense", '{"code": null}'])
def test_a_note_that_is_damaged_is_none(noted: Path, text: str) -> None:
    (noted / "prepared.json").write_text(text)
    assert not prepared.is_known(noted)


def test_a_setting_that_is_another_is_noticed(noted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRACE_PERIOD", "7")
    assert not prepared.is_known(noted)


def test_a_redis_of_its_own_is_another_at_each_start(
    noted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODE_REDIS", "/usr/bin/redis-server")
    monkeypatch.setenv("REDIS_URL", "redis://:one@127.0.0.1:1/0")
    prepared.note(noted)
    monkeypatch.setenv("REDIS_URL", "redis://:other@127.0.0.1:2/0")
    assert prepared.is_known(noted)


def test_code_that_is_another_is_noticed(noted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = prepared._code()

    def younger(folder: str) -> Iterator[tuple[str, int, int]]:
        yield f"{folder}/new.py", 1, 2

    monkeypatch.setattr(prepared, "_modules", younger)
    assert prepared._code() != before
    assert not prepared.is_known(noted)


def test_a_migration_that_is_missing_is_noticed(noted: Path) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT app, name, applied FROM django_migrations WHERE app = 'spark'")
        rows = cursor.fetchall()
        cursor.execute("DELETE FROM django_migrations WHERE app = 'spark'")
        try:
            assert not prepared.is_known(noted)
        finally:
            with connection.cursor() as again:
                for row in rows:
                    again.execute(
                        "INSERT INTO django_migrations (app, name, applied) VALUES (%s, %s, %s)",
                        row,
                    )


def test_a_console_that_nobody_can_enter_is_noticed(noted: Path) -> None:
    get_user_model().objects.all().delete()
    assert not prepared.is_known(noted)
