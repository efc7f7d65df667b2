"""A Python runtime as a process, for tests: a hyperty that answers, and that asks.

Usage: talker.py OPTIONS    (JSON: domain, catalogues; `sandbox`: "all" puts the home stub in one;
`token`: log in with this access token)
Writes a line of JSON {url, runtimeURL} once it is reachable. Reads lines {ask: address, times}, and
answers each with {codes, latencies} (ms).
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from msgnode.runtime.python import Runtime, Settings


async def ask(runtime: Runtime, to: str, times: int) -> dict[str, Any]:
    codes, latencies = [], []
    for number in range(times):
        value = {"n": number, "text": "grüße"}
        message = {"type": "create", "from": f"{runtime.url}/app", "to": to}
        began = time.perf_counter()
        body = (await runtime.bus.request({**message, "body": {"value": value}}))["body"]
        latencies.append((time.perf_counter() - began) * 1000)
        is_other = body["code"] == 200 and body["value"] != value
        codes.append(-1 if is_other else body["code"])
        if body["code"] != 200:
            return {"codes": codes, "latencies": latencies, "desc": body.get("desc")}
    return {"codes": codes, "latencies": latencies}


async def main() -> None:
    options = json.loads(sys.argv[1])
    in_process = options.pop("sandbox", "own") == "own"
    token = options.pop("token", "")
    async with Runtime(Settings(home_in_process=in_process, **options)) as runtime:
        state = await runtime.log_in()
        assert state == "live", state
        if token:
            head = {"type": "execute", "from": f"{runtime.url}/app"}
            login = {"method": "login", "params": {"token": token}}
            to = f"domain://idm.{runtime.settings.domain}"
            said = await runtime.bus.request({**head, "to": to, "body": login})
            assert said["body"]["code"] == 200, said
        me = f"hyperty://{runtime.settings.domain}/{runtime.url.rpartition('/')[2]}"

        def serve(message: dict[str, Any]) -> None:
            if message["type"] == "create":
                head = {"id": message["id"], "type": "response", "from": me, "to": message["from"]}
                body = {"code": 200, "value": message["body"]["value"]}
                runtime.bus.post_message({**head, "body": body})

        runtime.bus.add_listener(me, serve)
        sm = f"domain://msg-node.{runtime.settings.domain}/sm"
        claim = {"type": "subscribe", "from": f"{runtime.url}/sm", "to": sm}
        claimed = await runtime.bus.request({**claim, "body": {"resources": [me], "source": me}})
        assert claimed["body"]["code"] == 200, claimed
        print(json.dumps({"url": me, "runtimeURL": runtime.url}), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            asked = json.loads(line)
            print(json.dumps(await ask(runtime, asked["ask"], asked["times"])), flush=True)


asyncio.run(main())
