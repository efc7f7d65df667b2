"""Rows go with all that refers to them, though another process adds to that at the same time."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connections
from django.db.models.deletion import Collector
from django.utils import timezone

from msgnode.models import Invitation, PushEndpoint
from msgnode.storage.deletion import delete_with_dependents

pytestmark = pytest.mark.django_db(transaction=True)
SOON = 0.3


def endpoint(name: str) -> PushEndpoint:
    until = timezone.now() + timedelta(days=1)
    return PushEndpoint.objects.create(
        id=name, subject="1", user_url="user://localhost/bob", runtime_url=f"runtime://{name}",
        address="runtime://a/invitations", renewed_at=timezone.now(), expires_at=until,
    )  # fmt: skip


def add(of: str) -> None:
    until = timezone.now() + timedelta(days=1)
    Invitation.objects.create(
        endpoint_id=of, name="i1", message="{}", keep_until=until, expires_at=until
    )


def test_what_is_added_after_it_was_looked_for_is_refused_and_the_rest_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("gone", "kept"):
        endpoint(name)
    add("kept")
    came: list[str] = []

    def add_here() -> None:
        try:
            add("gone")
            came.append("added")
        except IntegrityError:
            came.append("refused")
        finally:
            connections.close_all()

    adding = threading.Thread(target=add_here)
    collect = Collector.collect

    def collected_and_added_to(self: Collector, *given: Any, **named: Any) -> None:
        collect(self, *given, **named)
        if adding.ident is None:
            adding.start()
            adding.join(SOON)  # it waits for the one writer, or for the lock

    monkeypatch.setattr(Collector, "collect", collected_and_added_to)
    assert delete_with_dependents(PushEndpoint.objects.filter(pk="gone")) == 1
    adding.join(20)
    assert came == ["refused"]
    assert list(PushEndpoint.objects.values_list("pk", flat=True)) == ["kept"]
    assert list(Invitation.objects.values_list("endpoint", flat=True)) == ["kept"]
