"""A SECRET_KEY that was changed is noticed, and everything can be encrypted anew."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from django.apps import apps
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import models

from msgnode.identity import encryption, sealed_secrets
from msgnode.models import Issuer, ProviderKey
from msgnode.qos.models import TurnSecret
from tests.node import Node, eventually, running

OLD, NEW = "the former key of this node", "the key of now"


@pytest.fixture
def sealed(settings: Any, db: None) -> None:
    """A node that has encrypted three secrets with its former key."""
    settings.KEY_ENCRYPTION_KEY, settings.SECRET_KEY_FALLBACKS = "", []
    settings.SECRET_KEY = OLD
    Issuer.objects.create(name="a", url="https://a", client_secret=encryption.encrypt("s3cret"))
    Issuer.objects.create(name="b", url="https://b")
    TurnSecret.objects.create(sealed=encryption.encrypt("turn"))
    now = datetime.now(UTC)
    ProviderKey.objects.create(
        kid="k", public={"kid": "k"}, sealed=encryption.encrypt("PEM"), signs_from=now
    )
    settings.SECRET_KEY = NEW


def ran(*words: str) -> tuple[int, str]:
    told = StringIO()
    try:
        call_command(*words, stdout=told, stderr=told)
    except CommandError as fault:
        return fault.returncode, told.getvalue() + str(fault)
    return 0, told.getvalue()


@pytest.mark.usefixtures("sealed")
def test_a_key_that_was_changed_without_its_fallback_is_named() -> None:
    fault = sealed_secrets.fault()
    assert "1 of 1 signing keys of the provider, 1 of 1 client secrets of issuers" in fault
    assert "SECRET_KEY_FALLBACKS" in fault
    assert "\n" not in fault
    assert "msgnode.W003" in ran("check")[1]
    status, said = ran("provider_key")
    assert (status, said.split()[0]) == (1, "unreadable")
    status, said = ran("secret_key", "--encrypt-anew")
    assert (status, "3 secrets cannot be read" in said) == (1, True)
    assert sealed_secrets.fault()  # nothing was overwritten
    assert "may go" not in said


@pytest.mark.usefixtures("sealed")
def test_what_a_fallback_reads_is_encrypted_anew_and_the_fallback_may_go(settings: Any) -> None:
    settings.SECRET_KEY_FALLBACKS = [OLD]
    assert sealed_secrets.fault() == ""
    assert "msgnode.W003" not in ran("check")[1]
    status, said = ran("secret_key")
    assert status == 0
    assert "3 need a former key" in said
    assert "may go" not in said
    status, said = ran("secret_key", "--encrypt-anew")
    assert (status, "3 were encrypted" in said, "it may go" in said) == (0, True, True)
    settings.SECRET_KEY_FALLBACKS = []
    assert sealed_secrets.fault() == ""
    assert encryption.decrypt(Issuer.objects.get(name="a").client_secret) == "s3cret"
    assert encryption.decrypt(TurnSecret.objects.get().sealed) == "turn"
    assert json.loads(ran("secret_key", "--json")[1])["fallbacks_may_go"] is True


@pytest.mark.usefixtures("sealed")
def test_what_was_saved_meanwhile_stays(settings: Any, monkeypatch: Any) -> None:
    settings.SECRET_KEY_FALLBACKS = [OLD]
    saved = encryption.encrypt("newer")
    real = encryption.rotated

    def rotated(old: str) -> str:
        Issuer.objects.filter(client_secret=old).update(client_secret=saved)
        return real(old)

    monkeypatch.setattr(sealed_secrets, "rotated", rotated)
    sealed_secrets.encrypt_anew()
    assert Issuer.objects.get(name="a").client_secret == saved


def test_every_column_with_encrypted_values_is_known() -> None:
    """By the names that such columns have; whoever adds one lists it."""
    found = {
        (model._meta.label, field.name)
        for model in apps.get_models()
        for field in model._meta.get_fields()
        if isinstance(field, models.TextField)
        and (field.name.startswith("sealed") or field.name == "client_secret")
        and model._meta.app_label in ("msgnode", "qos")
    }
    assert found == {(model, field) for _, model, field in sealed_secrets.COLUMNS}


def health_of(node: Node) -> dict[str, Any]:
    with urlopen(f"http://{node.host}:{node.port}/health/ready") as answer:  # noqa: S310
        body: dict[str, Any] = json.load(answer)
    return body


@pytest.mark.long
async def test_a_node_that_cannot_read_its_secrets_says_so_and_serves(
    tmp_path: Path, template: Path
) -> None:
    shutil.copy(template, tmp_path / "rows.sqlite3")
    with closing(sqlite3.connect(tmp_path / "rows.sqlite3")) as rows, rows:
        sealed = encryption.encrypt("of another key")
        rows.execute(
            "INSERT INTO qos_turnsecret (sealed, made_at) VALUES (?, '2026-01-01')", [sealed]
        )
    with running(tmp_path / "node", tmp_path / "rows.sqlite3", SECRET_KEY="k" * 50) as node:
        body = await asyncio.to_thread(health_of, node)
        assert (body["status"], node.is_running()) == ("ready", True)
        assert "1 of 1 secrets shared with TURN servers" in body["problems"]["secrets"]
        assert "SECRET_KEY or KEY_ENCRYPTION_KEY has changed" in node.log()
        sql = "SELECT count(*) FROM msgnode_alarm WHERE kind = 'secrets-unreadable'"
        limit = time.monotonic() + 20
        while node.rows(sql) != [(1,)]:
            assert time.monotonic() < limit
            await eventually()
