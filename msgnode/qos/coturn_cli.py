"""A client of coturn's command line interface: lists sessions, and ends them.

It is plain text over TCP with a password, meant for the same machine. Its output is bounded in
bytes and in time, because the process may be frozen, or not be coturn at all.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

MAX_BYTES = 16 * 1024 * 1024
STEP_SECONDS = 3.0
_PROMPT = re.compile(rb"(?:^|[\r\n])> $")
_ASKS_PASSWORD = re.compile(rb"password:\s*$")
_LAST = 64  # bytes in which a prompt is looked for
_SESSION = re.compile(r"id=(\d{1,32}), user <([^<>\r\n]{0,255})>:")
_TOTAL = re.compile(r"Total sessions: (\d{1,9})\b")


class CliFault(Exception):
    """The server is out of reach, refuses the password, or sends something unreadable."""


class Running(NamedTuple):
    """A session of the server, which is an allocation."""

    number: str
    user: str


class Listing(NamedTuple):
    """The sessions that were asked for; `is_whole` unless the server has left some out."""

    sessions: list[Running]
    is_whole: bool


class Cli:
    """An open command line; use `connected`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._left = MAX_BYTES

    async def sessions(self, user: str = "") -> Listing:
        """The sessions of a user, or all."""
        text = await self._ask(f"ps {user}" if user else "ps")
        found = [Running(number, name) for number, name in _SESSION.findall(text)]
        total = _TOTAL.search(text)
        if total is None:
            raise CliFault("it does not list sessions as coturn does")
        mine = [each for each in found if not user or each.user == user]
        return Listing(mine, len(found) >= int(total[1]))

    async def cancel(self, number: str) -> None:
        """End a session."""
        await self._ask(f"cs {number}")

    async def log_in(self, password: str) -> None:
        """Show the password. Raises CliFault if it is none."""
        await self._until(_ASKS_PASSWORD)
        self._writer.write(password.encode() + b"\r\n")
        await self._until(_PROMPT)

    async def _ask(self, command: str) -> str:
        self._writer.write(command.encode() + b"\r\n")
        return await self._until(_PROMPT)

    async def _until(self, end: re.Pattern[bytes]) -> str:
        said = bytearray()
        try:
            async with asyncio.timeout(STEP_SECONDS):
                while not end.search(bytes(said[-_LAST:])):
                    part = await self._reader.read(65536)
                    self._left -= len(part)
                    if not part or self._left < 0:
                        raise CliFault("it hangs up" if not part else "it says too much")
                    said += part
        except TimeoutError:
            raise CliFault("it does not answer") from None
        return said.decode(errors="replace")


@asynccontextmanager
async def connected(place: str, password: str) -> AsyncIterator[Cli]:
    """A command line at `host:port`, logged in.

    Raises:
        CliFault: see there.
    """
    host, _, port = place.rpartition(":")
    try:
        async with asyncio.timeout(STEP_SECONDS):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, ValueError, OverflowError, TimeoutError) as error:
        raise CliFault(f"it is out of reach ({type(error).__name__})") from None
    try:
        cli = Cli(reader, writer)
        await cli.log_in(password)
        yield cli
    except OSError as error:
        raise CliFault(f"the connection broke ({type(error).__name__})") from None
    finally:
        writer.transport.abort()
