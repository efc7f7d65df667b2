"""The speed of light: a relay that does nothing but relay, on the server the node runs on.

One `orjson.loads` a frame, one dictionary look-up, one send per listener. `open` and `subscribe`
frames enter an address into the dictionary, so that node and relay are driven by the same load.

    python -m bench.bare_relay daphne 9000
    python -m bench.bare_relay uvicorn 9000
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import uvloop

Send = Callable[[dict[str, Any]], Awaitable[None]]

listeners: dict[str, list[Send]] = {}


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
    for address in mine:
        listeners[address].remove(send)
        if not listeners[address]:
            del listeners[address]


def _enter(message: dict[str, Any], send: Send) -> list[str]:
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
    if server == "uvicorn":
        import uvicorn

        uvicorn.run(
            application,
            host="127.0.0.1",
            port=port,
            ws="websockets-sansio",
            loop="uvloop",
            lifespan="off",
            access_log=False,
            log_level="warning",
            backlog=4096,
        )
        return
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())  # before anything imports Twisted
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
