"""Answers who says "@bot …" in the chat: python bot.py [http://127.0.0.1:8000]."""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime
from typing import Any

from hyperty_runtime import Runtime, Settings, Syncher

NODE = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"


def answer(asked: str) -> str:
    """What the bot says."""
    match asked.split():
        case ["time"]:
            return f"It is {datetime.now().astimezone():%H:%M}."
        case ["echo", *words]:
            return " ".join(words)
    return "I know: @bot time, @bot echo WORDS"


async def main() -> None:
    """Take part until it is stopped."""
    async with Runtime(Settings("localhost", catalogues={"localhost": NODE})) as runtime:
        await runtime.log_in()
        me = await runtime.hyperty("bot", register=False)
        addresses = await runtime.find(user="room")
        if not addresses:
            sys.exit("There is no room: start room.mjs.")
        url = await me.request(addresses[0], type="read")
        room = await Syncher(runtime, me.url).subscribe(url)

        async def heard(event: Any) -> None:
            said = str(event.value.get("text", "")) if event.type == "create" else ""
            if said.startswith("@bot"):
                await room.add_child({"who": "bot", "text": answer(said.removeprefix("@bot"))})

        room.on_child(heard)
        print("The bot listens.", flush=True)
        await asyncio.Event().wait()


asyncio.run(main())
