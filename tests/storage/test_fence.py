"""The fence: what a worker writes is refused once its epoch is retired."""

from __future__ import annotations

import asyncio
import threading

import pytest
from asgiref.sync import sync_to_async
from django.db import connection

from msgnode import models
from msgnode.bus.writing import Call, Create
from msgnode.storage.fence import Fence, Fenced
from msgnode.storage.writer import GroupWriter

pytestmark = pytest.mark.django_db(transaction=True)


def enter(epoch: str) -> None:
    models.Worker.objects.create(epoch=epoch, name=epoch, host="h", pid=1, state="ready")


def retire(epoch: str) -> None:
    models.Worker.objects.filter(epoch=epoch).delete()


async def test_what_comes_after_the_epoch_is_retired_is_refused_and_told() -> None:
    await sync_to_async(enter)("one")
    told = threading.Event()
    writer = GroupWriter(Fence("one", 5.0).check, told.set)
    await writer.submit(Create(models.AddressPool, [{"scheme": "before"}]))
    assert not told.is_set()
    await sync_to_async(retire)("one")
    after = [writer.submit(Create(models.AddressPool, [{"scheme": f"{n}"}])) for n in range(3)]
    outcomes = await asyncio.gather(*after, return_exceptions=True)
    assert {type(each) for each in outcomes} == {Fenced}
    assert told.is_set()
    await writer.stop()
    schemes = models.AddressPool.objects.values_list("scheme", flat=True)
    assert await sync_to_async(list)(schemes) == ["before"]


async def test_who_retires_an_epoch_waits_for_its_transaction_under_way() -> None:
    """Either the transaction is committed before, or it is refused: never after."""
    await sync_to_async(enter)("one")
    writer = GroupWriter(Fence("one", 20.0).check)
    is_inside, goes_on = threading.Event(), threading.Event()

    def inside() -> None:
        is_inside.set()
        assert goes_on.wait(20)

    written = writer.submit(Call(inside), Create(models.AddressPool, [{"scheme": "s"}]))
    seen: list[bool] = []

    def take_over() -> None:
        assert is_inside.wait(20)
        retire("one")
        seen.append(models.AddressPool.objects.filter(scheme="s").exists())
        connection.close()

    taking = asyncio.create_task(asyncio.to_thread(take_over))
    await asyncio.to_thread(is_inside.wait, 20)
    goes_on.set()
    await written
    await taking
    await writer.stop()
    assert seen == [True]
