"""The speed of light: a relay that does nothing but relay, on the server the node runs on.

One `orjson.loads` a frame, one dictionary look-up, one send per listener. `open` and `subscribe`
frames enter an address into the dictionary, so that node and relay are driven by the same load.

    python -m bench.bare_relay daphne 9000    stock Daphne
    python -m bench.bare_relay fast 9000      the node's Daphne, with its way to read and to write
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import uvloop

Send = Callable[[dict[str, Any]], Awaitable[None]]

_LIMITS = {  # those of the node
    "PING_INTERVAL": 30.0,
    "PING_TIMEOUT": 30.0,
    "MAX_FRAME_BYTES": 1024 * 1024,
    "MAX_REQUEST_BYTES": 16 * 1024 * 1024,
    "HANDSHAKE_TIMEOUT": 60.0,
}

listeners: dict[str, list[Any]] = {}
"""Who hears of what is sent to an address: a `send` of ASGI, or a link's `write`."""


async def application(scope: dict[str, Any], receive: Any, send: Send) -> None:
    """The whole relay."""
    if scope["type"] != "websocket":
        raise ValueError(f"The bare relay serves no {scope['type']}.")
    await receive()
    await send({"type": "websocket.accept"})
    mine: list[str] = []
    while True:
        event = await receive()
        if event["type"] == "websocket.disconnect":
            break
        text = event["text"]
        message = orjson.loads(text)
        found = listeners.get(message["to"])
        if found is not None:
            forward = {"type": "websocket.send", "text": text}
            for listener in found:
                await listener(forward)
        else:
            mine += _enter(message, send)
            answer = {"id": message["id"], "type": "response", "body": {"code": 200}}
            await send({"type": "websocket.send", "text": orjson.dumps(answer).decode()})
    _leave(mine, send)


async def fast_application(scope: dict[str, Any], receive: Any, send: Send) -> None:
    """The same over the links of the node's server (`msgnode.link`)."""
    if scope["type"] != "websocket":
        raise ValueError(f"The bare relay serves no {scope['type']}.")
    link = scope["extensions"]["msgnode.link"]
    write: Callable[[bytes], None] = link.write
    await receive()
    await send({"type": "websocket.accept"})
    mine: list[str] = []

    def relay(frame: bytes) -> None:
        message = orjson.loads(frame)
        found = listeners.get(message["to"])
        if found is not None:
            for listener in found:
                listener(frame)
        else:
            mine.extend(_enter(message, write))
            write(orjson.dumps({"id": message["id"], "type": "response", "body": {"code": 200}}))

    await link.run(relay)
    _leave(mine, write)


def _leave(addresses: list[str], send: Any) -> None:
    """Take back what `_enter` gave."""
    for address in addresses:
        listeners[address].remove(send)
        if not listeners[address]:
            del listeners[address]


def _enter(message: dict[str, Any], send: Any) -> list[str]:
    """Give the sender the addresses it opens or subscribes."""
    if message["type"] == "open":
        addresses = [message["from"]]
    elif message["type"] == "subscribe":
        addresses = message["body"]["resources"]
    else:
        return []
    for address in addresses:
        listeners.setdefault(address, []).append(send)
    return addresses


def main(server: str, port: int) -> None:
    """Serve until killed."""
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())  # before anything imports Twisted
    if server == "fast":
        from msgnode.servers.daphne import DaphneServing
        from msgnode.servers.start import listening_socket

        DaphneServing(fast_application, _LIMITS).run(listening_socket("127.0.0.1", port, False))
        return
    from daphne.server import Server

    Server(
        application=application,
        endpoints=[f"tcp:port={port}:interface=127.0.0.1:backlog=4096"],
        ping_interval=30,
        ping_timeout=30,
        websocket_timeout=-1,
        websocket_handshake_timeout=60,  # thousands may come at once
        server_name="",
    ).run()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
