"""Keys of repeated requests: one answer each, within bounds, and nothing left behind."""

from __future__ import annotations

import asyncio

import pytest

from msgnode.devices import idempotency
from msgnode.devices.http import Unprocessable
from msgnode.devices.idempotency import BYTES, Answer, IdempotencyKeys
from msgnode.sessions.budgets import QueueBudget

DONE = Answer(202, b"{}")


async def test_a_key_has_the_answer_of_its_first_request() -> None:
    keys = IdempotencyKeys()
    assert keys.begin("k", b"body") is None
    again = keys.begin("k", b"body")
    assert again is not None
    assert not again.done()
    keys.done("k", DONE)
    assert await again == DONE
    with pytest.raises(Unprocessable):
        keys.begin("k", b"other")


async def test_a_request_that_was_not_carried_may_come_again() -> None:
    keys = IdempotencyKeys()
    keys.begin("k", b"body")
    waiting = keys.begin("k", b"body")
    assert waiting is not None
    keys.failed("k")
    assert waiting.cancelled()
    assert keys.begin("k", b"body") is None


async def test_what_is_under_way_is_never_forgotten_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(idempotency, "KEYS", 3)
    keys = IdempotencyKeys()
    keys.begin("slow", b"")
    for n in range(20):
        keys.begin(str(n), b"")
        keys.done(str(n), Answer(200, b"x" * (BYTES // 2)))
    assert keys.waiting_bytes <= BYTES
    assert keys.begin("0", b"") is None
    slow = keys.begin("slow", b"")
    assert slow is not None
    assert not slow.done()


async def test_what_is_kept_counts_for_its_source_and_is_given_back() -> None:
    told: list[str] = []
    budget = QueueBudget(50_000, 10**9, lambda holder, text: told.append(holder))
    keys = IdempotencyKeys(budget)
    keys.charge_to(("source 192.0.2.1",))
    for n in range(10):
        keys.begin(str(n), b"")
        keys.done(str(n), Answer(200, b"x" * 10_000))
    assert 0 < budget.bytes == keys.waiting_bytes <= 50_000
    assert told
    keys.begin("under way", b"")
    keys.close()
    keys.done("under way", DONE)
    assert budget.bytes == keys.waiting_bytes == 0


async def test_keys_grow_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency, "SECONDS", -1.0)
    keys = IdempotencyKeys()
    keys.begin("k", b"body")
    keys.done("k", DONE)
    await asyncio.sleep(0)
    assert keys.begin("k", b"other") is None
