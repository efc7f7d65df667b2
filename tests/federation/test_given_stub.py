"""A stub that an operator gives by hand, for a peer whose node serves no catalogue."""

from __future__ import annotations

import hashlib
import io
import math
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from msgnode.federation import store
from msgnode.models import Peer

from .field_nodes import NODEJS_STUB
from .links import B

pytestmark = pytest.mark.django_db

CONFIG = '{"url": "https://node.b.example:9090"}'


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "stub.js"
    path.write_text(NODEJS_STUB)
    return path


def peers(*words: Any) -> str:
    out = io.StringIO()
    call_command("peers", *map(str, words), stdout=out, stderr=io.StringIO())
    return out.getvalue()


def test_it_waits_for_approval_like_one_that_was_found_and_no_catalogue_is_asked(
    script: Path,
) -> None:
    said = peers("add", B, "--stub", script, "--config", CONFIG)
    digest = hashlib.sha256(NODEJS_STUB.encode()).hexdigest()
    assert digest[:12] in said
    (row,) = store.read()
    assert (row.is_pending, row.kind, row.look_at) == (True, "nodejs", math.inf)
    assert store.stubs_of(Peer.objects.get())[0]["version"] == digest[:12]
    assert "may run" in peers("approve", B)
    (row,) = store.read()
    assert (row.is_served, row.approved_digest, row.needs_look) == (True, digest, False)
    place = row.place
    store.note_not_found(B, "a look that had begun before", place)
    assert store.read()[0].discovery == ""
    source, configuration = store.source_of(row.pk, digest) or ("", {})
    assert (source, configuration) == (NODEJS_STUB, {"url": "https://node.b.example:9090"})


def test_another_one_may_be_given_and_a_catalogue_be_looked_at_again(
    script: Path, tmp_path: Path
) -> None:
    config = tmp_path / "config.json"
    config.write_text(CONFIG)
    peers("add", B, "--stub", script, "--config", config)
    script.write_text("export default class VertxProtoStub { _start() {} }")
    assert "vertx" in peers("add", B, "--stub", script, "--config", config)
    assert (len(store.stubs_of(Peer.objects.get())), store.read()[0].kind) == (2, "vertx")
    peers("look", B)
    assert store.read()[0].needs_look


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--config", '{"url": "wss://evil.example/ws"}'), "no host of the peer"),
        (("--config", '{"url": "ws://b.example/ws"}'), "must begin with wss://"),
        (("--config", "{"), "no JSON"),
        (("--config", "/nowhere.json"), "cannot be read"),
        ((), "no url"),
        (("--config", CONFIG, "--stub", "/nowhere.js"), "cannot be read"),
    ],
)
def test_what_cannot_be_a_stub_says_why_and_changes_nothing(
    script: Path, words: tuple[str, ...], told: str
) -> None:
    with pytest.raises(CommandError, match=told):
        peers("add", B, "--stub", script, *words)
    assert not Peer.objects.exists()


def test_where_stubs_must_be_signed_none_is_given_by_hand(script: Path, settings: Any) -> None:
    settings.FEDERATION_SIGNED = True
    with pytest.raises(CommandError, match="must be signed"):
        peers("add", B, "--stub", script, "--config", CONFIG)
    assert store.stubs_of(Peer.objects.get()) == []
