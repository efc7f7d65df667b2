"""Case 60: the processor time that a gateway takes for a message, and nobody else beside it.

The server runs in another process and the node is played, so that what this one takes is the
gateway's: reading, converting, checking, queueing, answering and writing, with the loop that does
it. What the bus, policies and the sockets of runtimes take for a message is not in it.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import socket
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from time import thread_time
from typing import Any

import msgspec

from msgnode.core import messages
from msgnode.core.messages import Message
from msgnode.legacy.network import Here, LegacyNetwork, LegacySettings
from msgnode.legacy.sip import SipNetwork
from msgnode.legacy.xmpp import XmppNetwork

from . import kamailio
from .fake_proxy import BOB as SIP_BOB
from .fake_proxy import FakeProxy
from .fake_server import SECONDS
from .fake_xmpp import DOMAIN, GATEWAY, SECRET, FakeXmpp
from .linked import BOB, OURS, Node, link_at

ROUNDS, NUMBER = 5, 200
MOST_XMPP, MOST_SIP = 60.0, 360.0
"""How often the bus reads a frame in the time that a message may take: half as much again as it
takes. Microseconds depend on what else the machine does: a frame takes from 1.5 to 4."""
CHALLENGE = f'Proxy-Authenticate: Digest realm="{kamailio.DOMAIN}", nonce="n", qop="auth"'
BOBS = f"<sip:bob@{kamailio.DOMAIN}>"
MORE = ("Via: SIP/2.0/UDP 127.0.0.1:5062;rport=5062;branch=z9hG4bK-2", "User-Agent: a phone",
        "Content-Type: text/plain;charset=utf-8")  # fmt: skip


class Counting(Node):
    """A node whose hyperty answers 200.

    `spent` is the time that it takes itself, `left` the messages that it waits for.
    """

    def __init__(self) -> None:
        super().__init__()
        self.spent, self.left = 0.0, 0
        self.done = asyncio.Event()
        self._replies: list[Message] = []

    def frame_received(self, frame: bytes, message: Any = None) -> None:
        message = message or messages.parse(frame)  # as the bus would
        began = thread_time()
        if message.type == "create":
            if not self._replies:
                asyncio.get_running_loop().call_soon(self._reply)
            self._replies.append(messages.parse(messages.reply(message, {"code": 200})))
        elif message.type == "response":
            assert message.fields()["code"] == 200, frame
            self._count()
        else:
            super().frame_received(frame)
        self.spent += thread_time() - began

    def _reply(self) -> None:
        replies, self._replies = self._replies, []
        for each in replies:
            self.outlet.write(each.forwarded(each.recipients[0], True))
            self._count()

    def _count(self) -> None:
        self.left -= 1
        if not self.left:
            self.done.set()


@contextmanager
def beside(server: Any, say: Callable[[int], None]) -> Iterator[Callable[[], None]]:
    """Run a server in another process; what is given has it say so many messages."""

    async def play() -> None:
        await server.start()
        reader, _ = await asyncio.open_connection(sock=theirs)
        is_ready.set()
        while await reader.read(1):
            for number in range(NUMBER):
                say(number)

    ours, theirs = socket.socketpair()
    context = multiprocessing.get_context("fork")
    is_ready = context.Event()
    process = context.Process(target=lambda: asyncio.run(play()), daemon=True)
    process.start()
    try:
        assert is_ready.wait(SECONDS)
        yield lambda: ours.sendall(b"!")
    finally:
        process.kill()
        process.join(SECONDS)
        ours.close()
        theirs.close()


@asynccontextmanager
async def live(domain: str, make: Callable[[Here], LegacyNetwork]) -> Any:
    """A node whose link to a network is live."""
    gc.collect()
    gc.freeze()  # as a node does: what is loaded is not looked through again and again
    node = Counting()
    link = link_at(node, domain, make)
    task = asyncio.create_task(link.run())
    try:
        async with asyncio.timeout(SECONDS):
            while link.state != "live":  # noqa: ASYNC110  (another task makes it so)
                await asyncio.sleep(0.01)
        yield node
    finally:
        await link.stop()
        with suppress(asyncio.CancelledError):
            await task
        gc.unfreeze()


async def cost(node: Counting, begin: Callable[[], None]) -> float:
    """How many frames could be read in the time of a message: the least of some rounds."""
    frame = msgspec.json.encode({"id": "1", "type": "create", "from": OURS, "to": BOB, "body": {}})
    least = unit = 1.0
    for _ in range(ROUNDS):
        node.done.clear()
        node.left, node.spent = NUMBER, 0.0
        began = thread_time()
        begin()
        async with asyncio.timeout(SECONDS):
            await node.done.wait()
        await asyncio.sleep(0.01)  # the last is written
        least = min(least, (thread_time() - began - node.spent) / NUMBER)
        began = thread_time()
        for _ in range(NUMBER):
            messages.parse(frame)
        unit = min(unit, (thread_time() - began) / NUMBER)
    print(f"{least * 1e6:.0f} us, {least / unit:.0f} times {unit * 1e6:.1f}")
    return least / unit


def writer_to(node: Counting, to: str) -> Callable[[], None]:
    """Has a hyperty write so many messages, as the bus delivers them."""
    value = {"value": {"type": "chat", "content": "a message of some words"}}
    head = {"type": "create", "from": OURS, "to": to, "body": value}
    numbers = iter(range(ROUNDS * NUMBER))

    def write() -> None:
        began = thread_time()
        frames = [msgspec.json.encode({"id": str(next(numbers)), **head}) for _ in range(NUMBER)]
        parsed = [messages.parse(frame) for frame in frames]
        node.spent += thread_time() - began
        for each in parsed:
            node.outlet.write(each.forwarded(to, True))

    return write


async def both(
    domain: str, make: Callable[[Here], LegacyNetwork], to: str, from_there: Callable[[], None]
) -> tuple[float, float]:
    """What a message there, and one from there, costs."""
    async with live(domain, make) as node:
        out, into = await cost(node, writer_to(node, to)), await cost(node, from_there)
    return out, into


def test_case_60_a_message_of_xmpp_takes_no_more_time_than_it_may() -> None:
    server = FakeXmpp()
    settings = LegacySettings(DOMAIN, "127.0.0.1", server.port, GATEWAY, SECRET, per_minute=10**9)
    with beside(server, lambda number: server.message(f"m{number}")) as from_there:
        costs = asyncio.run(both(DOMAIN, partial(XmppNetwork, settings), BOB, from_there))
    assert max(costs) < MOST_XMPP


def test_case_60_a_message_of_sip_takes_no_more_time_than_it_may() -> None:
    server = FakeProxy()
    server.on_request = lambda one: (
        (200,) if one["proxy-authorization"] else (407, "", CHALLENGE))  # fmt: skip
    settings = LegacySettings(kamailio.DOMAIN, "127.0.0.1", server.port, kamailio.GATEWAY,
                              kamailio.SECRET, per_minute=10**9)  # fmt: skip

    def say(number: int) -> None:
        server.request("MESSAGE", f"m{number}", *MORE, From=f"{BOBS};tag={number}")

    with beside(server, say) as from_there:
        make = partial(SipNetwork, settings)
        costs = asyncio.run(both(kamailio.DOMAIN, make, SIP_BOB, from_there))
    assert max(costs) < MOST_SIP
