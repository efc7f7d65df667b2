"""The other end of a call, as a process: a Python runtime that answers offers with aiortc.

Usage: callee.py OPTIONS    (JSON: domain, catalogues)
Writes a line of JSON {url} once it can be called. Every message of a data channel comes back.
A request with `sdp` is answered with an SDP, any other with the bytes of all datagrams that its
sockets have sent and received; after one with `mute` it lets nothing out any more.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import aioice.ice
from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription

from msgnode.runtime.python import Runtime, Settings

COUNTED = {"sent": 0, "received": 0}
is_muted = False


def count_datagrams() -> None:
    """Count what passes the sockets of aioice, below everything that it thinks of."""
    protocol = aioice.ice.StunProtocol
    received, made = protocol.datagram_received, protocol.connection_made

    def datagram_received(self: Any, data: Any, addr: Any) -> None:
        COUNTED["received"] += len(data)
        received(self, data, addr)

    def connection_made(self: Any, transport: Any) -> None:
        made(self, Counting(transport))  # type: ignore[arg-type]

    protocol.datagram_received = datagram_received  # type: ignore[method-assign]
    protocol.connection_made = connection_made  # type: ignore[method-assign]


class Counting:
    """A transport that counts what it sends."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def sendto(self, data: Any, addr: Any = None) -> None:
        if not is_muted:
            COUNTED["sent"] += len(data)
            self._transport.sendto(data, addr)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Callee:
    """Answers one offer after the other."""

    def __init__(self) -> None:
        self.calls: list[RTCPeerConnection] = []

    async def answer(self, value: dict[str, Any]) -> dict[str, Any]:
        global is_muted
        if "sdp" in value:
            return {"sdp": await self._accept(value["sdp"])}
        if "mute" in value:
            is_muted = True
        return COUNTED

    async def _accept(self, offer: str) -> str:
        call = RTCPeerConnection(RTCConfiguration([]))
        self.calls.append(call)

        @call.on("datachannel")
        def opened(channel: Any) -> None:
            channel.on("message", channel.send)

        await call.setRemoteDescription(RTCSessionDescription(offer, "offer"))
        await call.setLocalDescription(await call.createAnswer())
        return str(call.localDescription.sdp)


async def main() -> None:
    options = json.loads(sys.argv[1])
    aioice.ice.get_host_addresses = lambda use_ipv4, use_ipv6: ["127.0.0.1"]
    count_datagrams()
    async with Runtime(Settings(home_in_process=True, **options)) as runtime:
        assert await runtime.log_in() == "live"
        me = f"hyperty://{runtime.settings.domain}/{runtime.url.rpartition('/')[2]}"
        callee = Callee()

        async def serve(message: dict[str, Any]) -> None:
            if message["type"] == "create":
                value = await callee.answer(message["body"]["value"])
                head = {"id": message["id"], "type": "response", "from": me, "to": message["from"]}
                runtime.bus.post_message({**head, "body": {"code": 200, "value": value}})

        runtime.bus.add_listener(me, serve)
        sm = f"domain://msg-node.{runtime.settings.domain}/sm"
        claim = {"type": "subscribe", "from": f"{runtime.url}/sm", "to": sm}
        claimed = await runtime.bus.request({**claim, "body": {"resources": [me], "source": me}})
        assert claimed["body"]["code"] == 200, claimed
        print(json.dumps({"url": me}), flush=True)
        await asyncio.to_thread(sys.stdin.readline)


asyncio.run(main())
