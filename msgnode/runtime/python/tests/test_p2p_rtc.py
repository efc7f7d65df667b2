"""Real connections of one process: names for addresses, which nobody waits for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

aioice = pytest.importorskip("aioice")

from msgnode.runtime.python.p2p.rtc import (  # noqa: E402
    BadDescription,
    RtcConnection,
    without_names,
)

NAMED = "a=candidate:1 1 udp 2113937151 6c5b3a4e-1111-4222-8333-444455556666.local 50000 typ host"


@pytest.fixture(autouse=True)
def on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aioice.ice, "get_host_addresses", lambda use_ipv4, use_ipv6: ["127.0.0.1"])


def test_candidates_with_names_are_taken_out_and_the_end_of_candidates_with_them() -> None:
    plain = "v=0\r\na=candidate:2 1 udp 1 127.0.0.1 9 typ host\r\na=end-of-candidates\r\n"
    assert without_names(plain) == (plain, [])
    kept, names = without_names(f"{NAMED}\r\n{plain}")
    assert kept == plain.replace("a=end-of-candidates\r\n", "") and names == [NAMED[2:]]


@pytest.mark.parametrize("named", ["offer", "answer"])
async def test_nobody_waits_for_a_name_that_is_never_resolved(
    named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def resolve(*_: object, **__: object) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(aioice.mdns.MDnsProtocol, "resolve", resolve)

    def hidden(described: dict[str, str]) -> dict[str, str]:
        """A description as of a browser, whose address has a name."""
        if described["type"] != named:
            return described
        lines = described["sdp"].splitlines()
        return {
            "type": named,
            "sdp": "".join(
                f"{NAMED if line.startswith('a=candidate:') else line}\r\n" for line in lines
            ),
        }

    one, other = RtcConnection(), RtcConnection()
    opened, heard = asyncio.Event(), asyncio.Event()
    one.on_open = opened.set
    other.on_frame = lambda frame: heard.set() if frame == "hello" else None
    async with asyncio.timeout(20):
        answered = await other.answer(hidden(await one.offer()))
        await one.accept(hidden(answered))
        await opened.wait()
        one.send("hello")
        await heard.wait()
        for each in (one, other):
            each.close()
            await each.closed()


async def test_a_side_that_cannot_gather_candidates_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The set-up fails then, and another one may be begun."""

    async def gather(*_: object) -> None:
        raise OSError("no socket is left")

    one, other = RtcConnection(), RtcConnection()
    async with asyncio.timeout(20):
        offered = await one.offer()
        monkeypatch.setattr(aioice.ice.Connection, "gather_candidates", gather)
        with pytest.raises(BadDescription, match="no socket is left"):
            await RtcConnection().offer()
        with pytest.raises(BadDescription, match="no socket is left"):
            await other.answer(offered)
        for each in (one, other):
            each.close()
            await each.closed()
