"""Visits the TURN servers: whether each answers, what it runs, and ending what must not run.

Each visit is a task of its own with limits, so a server that is frozen, floods or is gone delays no
other. What could not be ended is retried at the next visit.

Sessions are listed and ended by coturn's command line interface. It is plain text over TCP with a
password, meant for the same machine. Its output is bounded in bytes and in time, because the
process may be frozen, or not be coturn at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from msgnode.storage.alarms import TURN_DOWN

from .turn_state import Visit

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


log = logging.getLogger(__name__)

VISIT_SECONDS = 20.0
AGAIN_SECONDS = 2.0
"""Between two visits to a server where something is still to be ended."""
_MISSES = 2

Alarm = Callable[[str, str, str], None]
Clear = Callable[[str, str], None]
_COOKIE = bytes.fromhex("2112a442")
_URL = re.compile(r"(turns?):(\[[0-9a-fA-F:.]+\]|[^:?\[\]]+)(?::(\d{1,5}))?(?:\?transport=(\w+))?")


class TurnServers:
    """The visits of one supervisor.

    Args:
        poll: seconds between two looks at a server.
        raise_alarm: takes kind, subject and text.
        clear_alarm: takes kind and subject.
    """

    def __init__(self, poll: float, raise_alarm: Alarm, clear_alarm: Clear) -> None:
        self.up: dict[str, bool] = {}
        self._poll = poll
        self._raise_alarm = raise_alarm
        self._clear_alarm = clear_alarm
        self._under_way: dict[int, asyncio.Task[Visit]] = {}
        self._seen: dict[int, float] = {}
        self._tried: dict[int, float] = {}
        self._missed: dict[int, int] = {}

    def resting(self) -> list[int]:
        """The recently visited servers."""
        now = time.monotonic()
        return [server for server, at in self._seen.items() if now - at < self._poll]

    def begin(self, visits: list[Visit]) -> None:
        """Make these visits, except to servers with a visit in progress or a recent one."""
        now = time.monotonic()
        for visit in visits:
            is_early = not visit.is_polled and now - self._tried.get(visit.server, 0.0) < (
                AGAIN_SECONDS if self._missed.get(visit.server) else 0.0
            )
            if visit.server in self._under_way or is_early:
                continue
            self._tried[visit.server] = now
            if visit.is_polled:
                self._seen[visit.server] = now
            self._under_way[visit.server] = asyncio.create_task(_visit(visit))

    def finished(self) -> list[tuple[Visit, bool]]:
        """The visits that have ended since, and whether the server counts as up."""
        found = []
        for server, task in list(self._under_way.items()):
            if task.done():
                del self._under_way[server]
                visit = task.result()
                found.append((visit, self._judge(visit)))
        return found

    def _judge(self, visit: Visit) -> bool:
        """A server is down after two looks in a row that it did not answer."""
        if not visit.is_polled:
            return self.up.get(visit.name, True)
        if visit.is_up:
            self._missed[visit.server] = 0
            if not self.up.get(visit.name, False):
                self._clear_alarm(TURN_DOWN, visit.name)
        else:
            self._missed[visit.server] = self._missed.get(visit.server, 0) + 1
            self._seen[visit.server] = time.monotonic() - self._poll + min(2.0, self._poll)
        is_new = visit.name not in self.up
        was_up = self.up.get(visit.name, True)
        is_up = self._missed[visit.server] < _MISSES and (bool(visit.is_up) or was_up)
        if not is_up and (self._missed[visit.server] == _MISSES or is_new):
            text = f"The TURN server {visit.name} does not answer: {visit.fault or 'no STUN'}."
            self._raise_alarm(TURN_DOWN, visit.name, text)
        self.up[visit.name] = is_up
        return is_up

    async def stop(self) -> None:
        """Make no more visits."""
        for task in self._under_way.values():
            task.cancel()
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)
        self._under_way.clear()


async def _visit(visit: Visit) -> Visit:
    """One visit. Never raises, and ends in time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(VISIT_SECONDS):
            if visit.command_line:
                try:
                    async with connected(visit.command_line, visit.password) as cli:
                        await _work(visit, cli)
                except CliFault as fault:
                    visit.fault = f"command line: {fault}"
            elif visit.cuts:  # it cannot be told; its credentials end by themselves
                visit.cut = list(visit.cuts)
            if visit.is_polled and not visit.is_up:
                visit.is_up = await _answers(visit.urls)
    return visit


async def _work(visit: Visit, cli: Cli) -> None:
    for reservation, users in visit.cuts.items():
        listings = [await cli.sessions(user) for user in users]
        for session in (each for listing in listings for each in listing.sessions):
            log.info("A relayed session is ended.", extra={"reservation": reservation})
            await cli.cancel(session.number)
        if all(listing.is_whole and not listing.sessions for listing in listings):
            visit.cut.append(reservation)
    if visit.is_polled:
        listing = await cli.sessions()
        visit.is_up = True
        visit.users = [session.user for session in listing.sessions]
        if not listing.is_whole:
            visit.fault = "it lists some of its sessions only: raise cli-max-output-sessions"


async def _answers(urls: list[str]) -> bool:
    for place in map(place_of, urls[:4]):
        if place is not None and await answers(place):
            return True
    return False


class Place(NamedTuple):
    """Where a TURN URL leads."""

    host: str
    port: int
    is_udp: bool


def place_of(url: str) -> Place | None:
    """Where a TURN URL leads, None if it cannot be read."""
    found = _URL.fullmatch(url.strip())
    if found is None:
        return None
    scheme, host, port, transport = found.groups()
    default = 5349 if scheme == "turns" else 3478
    is_udp = scheme == "turn" and transport in (None, "udp")
    return Place(host.strip("[]"), int(port or default), is_udp)


async def answers(place: Place, seconds: float = 2.0) -> bool:
    """Whether a server answers there in time. Never raises."""
    with contextlib.suppress(OSError, TimeoutError, ValueError, OverflowError):
        async with asyncio.timeout(seconds):
            return await (_udp(place) if place.is_udp else _tcp(place))
    return False


async def _tcp(place: Place) -> bool:
    _, writer = await asyncio.open_connection(place.host, place.port)
    writer.transport.abort()
    return True


async def _udp(place: Place) -> bool:
    heard = _Heard(_COOKIE + secrets.token_bytes(12))
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(
        lambda: heard, remote_addr=(place.host, place.port)
    )
    try:
        for _ in range(3):
            transport.sendto(b"\x00\x01\x00\x00" + heard.transaction)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(heard.answered), 0.6)
                return True
    finally:
        transport.close()
    return False


class _Heard(asyncio.DatagramProtocol):
    """Waits for the answer to one transaction."""

    def __init__(self, transaction: bytes) -> None:
        self.transaction = transaction
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def datagram_received(self, data: bytes, addr: object) -> None:
        if data[:2] == b"\x01\x01" and data[4:20] == self.transaction and not self.answered.done():
            self.answered.set_result(None)

    def error_received(self, exc: Exception) -> None:
        """There is no answer; a retry may succeed."""
