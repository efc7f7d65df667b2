"""Pools in the console: filled by line, range and file; usage; exhaustion on a real node."""

from __future__ import annotations

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from msgnode.console import operator_actions
from msgnode.models import AddressPool, Alarm, Allocation, AuditEntry, ControlMessage, PoolAddress
from msgnode.storage.alarms import POOL_EXHAUSTED, raise_alarm
from tests.client import ALLOCATION, code

from .rows import fill
from .test_live import until

ADD = "/admin/msgnode/addresspool/add/"


@pytest.mark.django_db(transaction=True)
def test_a_pool_is_made_from_ranges_and_a_file(operator):
    upload = SimpleUploadedFile("guests.csv", b"address\nsip:{1-3}@b.org\nsip:desk@b.org\n")
    form = {"scheme": "SIP:", "note": "guests", "add": "sip:guest{001-250}@b.org\nsip:desk@b.org"}
    page = operator.post(ADD, {**form, "upload": upload}, follow=True).content.decode()
    pool = AddressPool.objects.get()
    assert pool.scheme == "sip"
    assert pool.addresses.count() == 254
    assert "254 addresses added." in page
    assert ControlMessage.objects.get().payload == {"schemes": ["sip"]}
    assert set(AuditEntry.objects.values_list("action", flat=True)) == {
        "addresspool.add", "addresspool.fill",
    }  # fmt: skip


@pytest.mark.django_db(transaction=True)
def test_what_is_wrong_is_told_by_line_and_nothing_is_made(operator):
    upload = SimpleUploadedFile("guests.csv", b"sip:1@b.org\ntel:2\n")
    form = {"scheme": "sip", "add": "sip:1@b.org\nsip:{9-1}@b.org", "upload": upload}
    page = operator.post(ADD, form).content.decode()
    assert "line 2: the range ends before it begins" in page
    assert "line 2: is no sip address" in page
    assert not AddressPool.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_an_address_that_a_pool_has_stays_where_it_is(operator):
    other = AddressPool.objects.create(scheme="tel")
    PoolAddress.objects.create(pool=other, address="sip:1@b.org")
    form = {"scheme": "sip", "add": "sip:{1-3}@b.org"}
    page = operator.post(ADD, form, follow=True).content.decode()
    assert "2 addresses added. 1 were in a pool already." in page


def test_usage_is_shown(operator):
    pool = AddressPool.objects.create(scheme="sip")
    operator_actions.fill_pool(pool, [f"sip:{n}@b.org" for n in range(5)])
    session = fill(1)[0]
    for n in range(2):
        Allocation.objects.create(
            address=f"sip:{n}@b.org", scheme="sip", session=session, kind=Allocation.Kind.LENT
        )
    assert "2 of 5" in operator.get("/admin/msgnode/addresspool/").content.decode()
    assert (
        "2 of 5" in operator.get(f"/admin/msgnode/addresspool/{pool.pk}/change/").content.decode()
    )


def test_a_pool_is_deleted_with_its_addresses(operator):
    pool = AddressPool.objects.create(scheme="sip")
    operator_actions.fill_pool(pool, [f"sip:{n}@b.org" for n in range(2000)])
    page = f"/admin/msgnode/addresspool/{pool.pk}/delete/"
    asked = operator.get(page).content.decode()
    assert "2000" in asked
    assert "sip:7@b.org" not in asked
    operator.post(page, {"post": "yes"})
    assert not PoolAddress.objects.exists()
    assert ControlMessage.objects.get().payload == {"schemes": []}


def test_filling_a_pool_clears_the_alarm_of_its_exhaustion(db):
    pool = AddressPool.objects.create(scheme="sip")
    raise_alarm(POOL_EXHAUSTED, "sip", "exhausted")
    operator_actions.fill_pool(pool, ["sip:1@b.org"])
    assert Alarm.objects.get().cleared_at is not None


async def test_leases_follow_the_session_and_exhaustion_raises_an_alarm(console):
    """Cases 9 and 27."""
    node, browser = console
    await browser.post("msgnode/addresspool/add/", scheme="sip", add="sip:guest{1-2}@b.org")
    wanted = {"scheme": "sip", "value": {"number": 1}}
    async with node.ws() as first, node.ws() as second:
        await first.open()
        await second.open()

        async def is_lent() -> bool:
            return code(await first.ask("create", ALLOCATION, wanted)) == 200

        await until(is_lent)
        (held,) = await second.allocate("sip")
        assert held.startswith("sip:guest")
        assert code(await second.ask("create", ALLOCATION, wanted)) == 503

        async def stands() -> bool:
            return POOL_EXHAUSTED in await browser.get("msgnode/alarm/?standing=yes")

        await until(stands)
        await first.close_session()
        await second.allocate("sip")

        async def is_over() -> bool:
            return not await stands()

        await until(is_over)
