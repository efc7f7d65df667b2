"""What tests of the registry share: a clock to turn, the field's HTTP client, usual bodies."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from django.http import HttpResponse
from django.test import Client

from registry import store


class Clock:
    """A clock that moves only when it is told to."""

    def __init__(self) -> None:
        self.moment = datetime(2030, 1, 1, 12, 0, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.moment

    def forward(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake = Clock()
    monkeypatch.setattr("django.utils.timezone.now", fake)
    return fake


class Field:
    """A client of the field: sends ids percent-encoded and the path as it stands."""

    def __init__(self, base: str = "/domain-registry") -> None:
        self._client = Client()
        self._base = base

    def get(self, *parts: str, query: str = "") -> HttpResponse:
        return self._send("GET", parts, b"", query)

    def put(self, *parts: str, body: Any = None) -> HttpResponse:
        raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return self._send("PUT", parts, raw)

    def delete(self, *parts: str) -> HttpResponse:
        return self._send("DELETE", parts, b"")

    def _send(self, method: str, parts: tuple[str, ...], body: bytes, query: str = "") -> Any:
        path = self._base + "".join("/" + quote(part, safe="") for part in parts)
        target = f"{path}?{query}" if query else path
        return self._client.generic(method, target, body, "application/json", RAW_URI=target)


@pytest.fixture
def field(db: None) -> Field:
    return Field()


@pytest.fixture
def heard() -> Iterator[list[tuple[str, str]]]:
    """(url, status) of the changes that observers are told."""
    told: list[tuple[str, str]] = []

    def listen(changes: Any) -> None:
        told.extend((change.url, change.after) for change in changes)

    before = list(store.listeners)
    store.listeners[:] = [listen]
    yield told
    store.listeners[:] = before


def hyperty(**other: Any) -> dict[str, Any]:
    """The body of a hyperty's registration with all its keys."""
    return {
        "descriptor": "hyperty-catalogue://catalogue.d/.well-known/hyperty/Chat",
        "expires": 3600,
        "resources": ["chat"],
        "dataSchemes": ["comm"],
        "status": "live",
        "runtime": "runtime://d/r1",
        "guid": "user-guid://g1",
        "p2pRequester": "runtime://d/r1/p2prequester/1",
        "p2pHandler": "runtime://d/r1/p2phandler/1",
    } | other


def data_object(**other: Any) -> dict[str, Any]:
    """The body of a data object's registration with all its keys."""
    return {
        "name": "myChat",
        "schema": "hyperty-catalogue://catalogue.d/.well-known/dataschema/Chat",
        "reporter": "hyperty://d/1",
        "expires": 3600,
        "resources": ["chat"],
        "dataSchemes": ["comm"],
        "status": "live",
        "runtime": "runtime://d/r1",
        "p2pRequester": "runtime://d/r1/p2prequester/1",
    } | other


def without(body: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key not in keys}
