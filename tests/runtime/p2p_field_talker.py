"""A runtime with the P2P stubs of the field as a process: the other end for pages.

Usage: p2p_field_talker.py OPTIONS
OPTIONS are JSON: `url` of the node's socket, and `written`, how descriptions come. It reads and
writes lines as `p2p_talker.py` does.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import aioice.ice

from tests.client import Client
from tests.runtime import field_peer
from tests.runtime.field_peer import FieldPeer


async def done(peer: FieldPeer, order: dict[str, Any]) -> Any:
    """What an order leads to."""
    match order["do"], order["with"]:
        case "invite", [handler]:
            return (await peer.invite(handler))["body"]["code"]
        case "say", [to, count]:
            for number in range(count):
                peer.say(to, number)
        case "heard", []:
            return [each["body"]["value"] for each in peer.by_channel]
        case "state", []:
            return peer.channel.readyState if peer.channel is not None else ""
        case "raised", []:
            return peer.raised
    return None


async def main() -> None:
    options = json.loads(sys.argv[1])
    aioice.ice.get_host_addresses = lambda use_ipv4, use_ipv6: ["127.0.0.1"]
    async with Client(options["url"]) as client:
        written = getattr(field_peer, options["written"])
        async with FieldPeer(await client.open(), written) as peer:
            named = {"url": peer.url, "runtimeURL": peer.runtime_url, "handler": peer.handler}
            print(json.dumps(named), flush=True)
            while line := await asyncio.to_thread(sys.stdin.readline):
                print(json.dumps({"result": await done(peer, json.loads(line))}), flush=True)


asyncio.run(main())
