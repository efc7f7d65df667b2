"""Orders about sessions that are not here: kept for a time, in a bounded number, done once."""

from __future__ import annotations

from typing import Any

import pytest

from msgnode.workers import orders as module
from msgnode.workers.orders import Orders
from tests.fakes import FakeSession


def session(id_: str) -> Any:
    found: Any = FakeSession("runtime://d/1")
    found.id, found.has_ended = id_, False
    return found


def test_orders_are_carried_out_once_in_order_and_none_after_the_end() -> None:
    done: list[int] = []
    orders, one = Orders(), session("one")

    def end(_: Any) -> None:
        one.has_ended = True

    for order in (
        lambda _: done.append(1),
        lambda _: done.append(2),
        end,
        lambda _: done.append(3),
    ):
        orders.keep("one", order)
    orders.carry_out(session("other"))
    assert len(orders) == 4
    orders.carry_out(one)
    orders.carry_out(one)
    assert done == [1, 2]
    assert len(orders) == 0


def test_they_are_kept_for_minutes_and_in_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    now, done = 0.0, []
    orders = Orders(lambda: now)
    orders.keep("old", done.append)
    now = module._KEPT + 1
    orders.carry_out(session("old"))
    assert not done
    monkeypatch.setattr(module, "_MOST", 3)
    for number in range(4):
        orders.keep(str(number), done.append)
    assert len(orders) == 3
    orders.carry_out(session("0"))
    assert not done
    orders.carry_out(session("3"))
    assert len(done) == 1
