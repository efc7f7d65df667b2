"""A Python runtime that logs in, for tests.

Usage: log_in.py OPTIONS    (JSON: domain, catalogues; `issuer`, or an `identity` that is refused)
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from msgnode.runtime.python import Runtime, Settings, openid


def say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


async def main() -> None:
    options = json.loads(sys.argv[1])
    issuer, identity = options.pop("issuer", ""), options.pop("identity", None)
    async with Runtime(Settings(**options), on_error=lambda _: None) as runtime:
        states: list[str] = []
        runtime.on_identity(lambda event: states.append(event.state))
        if identity:
            try:
                await runtime.log_in(identity)
            except Exception as error:
                say({"code": getattr(error, "code", 0), "message": str(error)})
            return
        show = {"open": lambda url: say({"open": url})}
        await runtime.log_in(openid(issuer=issuer, client_id="native", **show))
        me = await runtime.hyperty("me", handlers=lambda value, message: value)
        sm = f"domain://msg-node.{runtime.settings.domain}/sm"
        body = {"resources": [me.url], "source": me.url}
        subscribe = {"type": "subscribe", "from": f"{runtime.url}/sm", "to": sm, "body": body}
        while line := await asyncio.to_thread(sys.stdin.readline):
            what = json.loads(line).get("do")
            said: dict[str, Any] = {}
            if what == "ask":
                passed = await runtime.bus.request(subscribe)  # the node lets it pass
                assert passed["body"]["code"] == 200, passed
                said["answer"] = await me.request(me.url, "hello")
            elif what == "logOut":
                await runtime.log_out()
            elif what == "anonymous":
                answer = await runtime.bus.request(subscribe)
                said["refused"] = answer["body"].get("desc", "")
            say({"user": runtime.user, "states": states, **said})


asyncio.run(main())
