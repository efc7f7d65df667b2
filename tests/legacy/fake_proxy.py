"""A small SIP proxy for the tests of the gateway: it takes one flow, and plays who is behind it.

Written from RFC 3261; test_kamailio.py has kamailio do what matters. It does not read with the
gateway's parser.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, cast

from msgnode.legacy.network import LegacySettings
from msgnode.legacy.sip import SipNetwork

from .fake_server import SECONDS, FakeServer
from .kamailio import DOMAIN, GATEWAY, SECRET, Sip
from .linked import OWN, Kept, Linked, Node, link_at

ALICES, BOB = f"sip:alice%40{OWN}@{GATEWAY}", f"sip://{DOMAIN}/bob"
SDP = (
    "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n"
    "m=audio 9000 RTP/AVP 0\r\n"
)


class FakeProxy(FakeServer):
    """The proxy; `taken` is what came, in order, without REGISTER.

    `on_register` and `on_request` give the code of an answer and further headers, None for none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[Sip] = []
        self.registered: list[Sip] = []
        self.on_register: Callable[[Sip], tuple[Any, ...] | None] = lambda _: (200,)
        self.on_request: Callable[[Sip], tuple[Any, ...] | None] = lambda _: None
        self.pongs = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.opened += 1
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n")
                if head == b"\r\n":
                    self.pongs += 1
                    self._changed.set()
                    continue
                head += await reader.readuntil(b"\r\n\r\n")
                size = int(Sip(head)["content-length"])
                self._take(Sip(head + await reader.readexactly(size)))
                self._changed.set()

    def _take(self, message: Sip) -> None:
        is_register = message.method == "REGISTER" and not message.code
        (self.registered if is_register else self.taken).append(message)
        said = (self.on_register if is_register else self.on_request)(message)
        if said is None and message.method in ("OPTIONS", "CANCEL") and not message.code:
            said = (200,)
        if said is not None and not message.code:
            self.answer(message, *said)

    def answer(self, request: Sip, code: int, body: str = "", *more: str, tag: str = "t1") -> None:
        to = request["to"] if "tag=" in request["to"] or code == 100 else (
            f"{request['to']};tag={tag}")  # fmt: skip
        lines = [f"SIP/2.0 {code} As the test wants", *(f"Via: {v}" for v in request.all("via"))]
        lines += [f"From: {request['from']}", f"To: {to}", f"Call-ID: {request['call-id']}",
                  f"CSeq: {request['cseq']}", *more]  # fmt: skip
        self.send(lines, body)

    def send(self, lines: list[str], body: str = "") -> None:
        lines = [*lines, "Content-Type: application/sdp"] if body.startswith("v=0") else lines
        head = "\r\n".join([*lines, f"Content-Length: {len(body.encode())}", "", ""])
        self.raw((head + body).encode())

    def raw(self, data: bytes) -> None:
        assert self._writer is not None, "there is no flow"
        self._writer.write(data)

    def request(
        self, method: str, body: str = "", *more: str, to: str = ALICES, **named: str
    ) -> dict[str, str]:
        """Send a request of bob's; what it had. `without` names a header that it lacks."""
        head = {
            "Via": f"SIP/2.0/TCP 127.0.0.1:1;branch=z9hG4bK{secrets.token_hex(6)}",
            "From": f"<sip:bob@{DOMAIN}>;tag=b1", "To": f"<{to}>",
            "Call-ID": secrets.token_hex(6), "CSeq": f"1 {method}", "Max-Forwards": "70",
            "Contact": "<sip:bob@127.0.0.1:9>",
        }  # fmt: skip
        head |= {key.replace("_", "-"): value for key, value in named.items()}
        lines = [f"{method} {to} SIP/2.0", *(f"{k}: {v}" for k, v in head.items() if v), *more]
        self.send(lines, body)
        return head

    def of(self, method: str, code: int = 0) -> list[Sip]:
        """The requests of a method that came, or responses with a code."""
        return [e for e in self.taken if e.method == method and e.code == code]

    async def expect(self, method: str, code: int = 0, number: int = 1) -> Sip:
        await self.until(lambda: len(self.of(method, code)) >= number)
        return self.of(method, code)[number - 1]

    async def code_of(self, method: str, body: str = "", *more: str, **named: str) -> Sip:
        """Send a request; its final response."""
        sent = self.request(method, body, *more, **named)
        found = await self.until(
            lambda: [e for e in self.taken if e.code >= 200 and e["call-id"] == sent["Call-ID"]
                     and e["cseq"] == sent["CSeq"]]
        )  # fmt: skip
        return cast(Sip, found[0])


class SipLinked(Linked):
    """A link to a proxy, and its node."""

    def call_out(self, sdp: str = SDP, to: str = BOB) -> str:
        """A runtime calls; the id of its message."""
        value = {"connectionDescription": {"type": "offer", "sdp": sdp}, "iceCandidates": []}
        return self.send({"value": value}, to=to)

    def last(self, type_: str) -> Any:
        found = [each for each in self.node.said if each["type"] == type_]
        return found[-1] if found else None

    def answer_call(self, frame: Any, sdp: str = SDP) -> None:
        """A runtime answers a call."""
        value = {"connectionDescription": {"type": "answer", "sdp": sdp}}
        body = {"code": 200, "value": value}
        head = {"id": frame["id"], "type": "response", "from": frame["to"], "to": frame["from"]}
        self.node.outlet.write(json.dumps({**head, "body": body}).encode())

    async def codes(self, id_: str, final: bool = True) -> list[int]:
        """The codes of the answers to a message, until a final one."""

        def found() -> list[int]:
            said = [each for each in self.node.said if each["type"] == "response"]
            codes = [each["body"]["code"] for each in said if each["id"] == id_]
            return codes if codes and (codes[-1] >= 200 or not final) else []

        return cast(list[int], await self.until(found))


@asynccontextmanager
async def sip_linked(
    server: Any = None, kept: Kept | None = None, clock: Any = None, **settings: Any
) -> AsyncIterator[SipLinked]:
    """A link; it is live unless a secret is given."""
    node = Node()
    fake = server or await FakeProxy().start()
    place: dict[str, Any] = {
        "host": "127.0.0.1",
        "port": fake.port,
        "component": GATEWAY,
        "secret": SECRET,
    }
    chosen = LegacySettings(DOMAIN, **(place | {"per_minute": 100_000, "pool": 3} | settings))
    make = partial(SipNetwork, chosen, **({"clock": clock} if clock else {}))
    link = link_at(node, DOMAIN, make, kept)
    task = asyncio.create_task(link.run())
    each = SipLinked(link, node, fake)
    try:
        if "secret" not in settings:
            async with asyncio.timeout(SECONDS):
                await each.live()
        yield each
    finally:
        await link.stop()
        with suppress(asyncio.CancelledError):
            await task
        if server is None:
            await fake.stop()
