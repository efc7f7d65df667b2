"""A WebSocket client as small as a protostub: opens a session, asks, sends, and reads in order.

Frames that are not what a call waits for stay in `inbox`, in the order they came. Every wait has a
limit, so that a frame that never comes fails the test with what came instead.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import uuid
from collections import deque
from contextlib import suppress
from typing import Any, Self
from urllib.parse import quote

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

DOMAIN = "localhost"
ALLOCATION = f"domain://msg-node.{DOMAIN}/address-allocation"
SM = f"domain://msg-node.{DOMAIN}/sm"
REGISTRY = f"domain://registry.{DOMAIN}"
SESSION = "mn:/session"
LIMIT = 30.0

Frame = dict[str, Any]


def runtime(name: str = "") -> str:
    """A runtime URL nobody else uses."""
    return f"runtime://{DOMAIN}/{name}{uuid.uuid4().hex}"


def address(scheme: str = "hyperty") -> str:
    """An address of our domain that nobody else uses, as a runtime makes it."""
    return f"{scheme}://{DOMAIN}/{uuid.uuid4()}"


class Client:
    def __init__(self, url: str, runtime_url: str | None = None) -> None:
        self.url = url if runtime_url is None else f"{url}?runtimeURL={quote(runtime_url, safe='')}"
        self.runtime_url = runtime_url or ""
        self.token = ""
        self.user = ""  # who is logged in
        self.inbox: deque[Frame] = deque()
        self._ids = itertools.count(1)
        self._socket: ClientConnection | None = None

    # --- the socket -------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        return await self.connect()

    async def __aexit__(self, *_: object) -> None:
        await self.hang_up()

    async def connect(self, **options: Any) -> Self:
        self._socket = await connect(
            self.url, max_size=None, compression=None, ping_interval=None, proxy=None,
            open_timeout=LIMIT, max_queue=None, **options,
        )  # fmt: skip
        return self

    async def hang_up(self) -> None:
        """Close the socket without a word to mn:/session."""
        if self._socket is not None:
            # A socket that was reset while it closes is aborted twice by the client's library, and
            # the second time its transport has no event loop any more.
            with suppress(AttributeError):
                await self._socket.close()

    def cut(self) -> None:
        """Lose the socket, as a network does."""
        self.socket.transport.abort()

    @property
    def socket(self) -> ClientConnection:
        assert self._socket is not None, "not connected"
        return self._socket

    async def close_code(self) -> int:
        """The code the server closes with; waits for it, and drops what comes before."""
        try:
            async with asyncio.timeout(LIMIT):
                while True:
                    await self.socket.recv()
        except ConnectionClosed:
            return self.socket.close_code or 0

    # --- sessions ---------------------------------------------------------------------------------

    @property
    def session_url(self) -> str:
        return f"{self.runtime_url}/{self.token}"

    async def open(self, runtime_url: str = "") -> Self:
        """Open a session on `/ws` and keep its token."""
        self.runtime_url = runtime_url or runtime()
        answer = await self.ask("open", SESSION, sender=self.runtime_url)
        assert answer["body"]["code"] == 200, answer
        self.token = answer["body"]["runtimeToken"]
        return self

    async def reopen(self, runtime_url: str, token: str) -> Frame:
        """Resume a session on `/ws`; the whole answer."""
        self.runtime_url, self.token = runtime_url, token
        answer = await self.ask("re-open", SESSION, sender=self.session_url)
        self.token = answer["body"].get("runtimeToken", token)
        return answer

    async def resume(self, before: Client) -> Self:
        """Resume the session of another client on `/ws`; the node may say to try again."""
        async with asyncio.timeout(LIMIT):
            while code(answer := await self.reopen(before.runtime_url, before.token)) == 503:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert code(answer) == 200, answer
        assert "runtimeToken" not in answer["body"], "the session was lost"
        return self

    # --- frames -----------------------------------------------------------------------------------

    async def send(self, type_: str, to: Any, body: Any = None, **more: Any) -> Any:
        """Send a message; its id. `sender` and `id` are made up where they are not given."""
        id_ = more.pop("id") if "id" in more else next(self._ids)
        frame = {
            "id": id_,
            "type": type_,
            "from": more.pop("sender", self.runtime_url),
            "to": to,
            "body": {} if body is None else body,
            **more,
        }
        await self.send_raw(json.dumps(frame))
        return id_

    async def send_raw(self, frame: str | bytes) -> None:
        async with asyncio.timeout(LIMIT):  # wait_for may miss that it is cancelled
            await self.socket.send(frame)

    async def ask(self, type_: str, to: Any, body: Any = None, **more: Any) -> Frame:
        """Send a request; the response to it, whatever else comes before."""
        id_ = await self.send(type_, to, body, **more)
        return await self.answer(id_)

    async def answer(self, id_: Any) -> Frame:
        """The next response with this id."""
        return await self.expect(type="response", id=id_)

    async def expect(self, **wanted: Any) -> Frame:
        """The next frame whose fields are these (`sender` means `from`)."""
        if "sender" in wanted:
            wanted["from"] = wanted.pop("sender")
        for frame in self.inbox:
            if _fits(frame, wanted):
                self.inbox.remove(frame)
                return frame
        try:
            async with asyncio.timeout(LIMIT):
                while True:
                    frame = await self.receive()
                    if _fits(frame, wanted):
                        return frame
                    self.inbox.append(frame)
        except TimeoutError:
            raise AssertionError(f"no {wanted}; instead: {list(self.inbox)}") from None

    async def receive(self) -> Frame:
        """The next frame from the socket."""
        async with asyncio.timeout(LIMIT):
            frame = json.loads(await self.socket.recv())
        assert isinstance(frame, dict)
        return frame

    async def settled(self) -> list[Frame]:
        """What has come so far, once everything sent before has been handled.

        A request that is refused in line is the mark: its answer follows every other one.
        """
        id_ = await self.send("read", SM, sender=self.runtime_url, id=f"settled-{uuid.uuid4()}")
        await self.answer(id_)
        arrived = list(self.inbox)
        self.inbox.clear()
        return arrived

    async def received_from(self, other: Client) -> list[Frame]:
        """All that has come to us, up to a mark that `other` sends us now: order per sender and
        receiver tells what will never come."""
        mark = f"mark-{uuid.uuid4()}"
        await other.send("execute", self.runtime_url, {"value": mark}, id=mark)
        await self.expect(id=mark)
        arrived = list(self.inbox)
        self.inbox.clear()
        return arrived

    # --- what tests ask of the components ---------------------------------------------------------

    async def allocate(self, scheme: str = "hyperty", number: int = 1, key: str = "") -> list[str]:
        value: Frame = {"number": number}
        if key:
            value["allocationKey"] = key
        answer = await self.ask("create", ALLOCATION, {"scheme": scheme, "value": value})
        assert answer["body"]["code"] == 200, answer
        allocated = answer["body"]["value"]["allocated"]
        assert isinstance(allocated, list)
        return allocated

    async def subscribe(self, *addresses: str) -> Frame:
        return await self.ask("subscribe", SM, {"resources": list(addresses)})

    async def unsubscribe(self, *addresses: str) -> Frame:
        return await self.ask("unsubscribe", SM, {"resources": list(addresses)})

    async def close_session(self) -> int:
        """Say `close`; the code the server closes the socket with."""
        await self.send("close", SESSION, sender=self.session_url)
        return await self.close_code()


def code(answer: Frame) -> int:
    """The code of a response."""
    found = answer["body"]["code"]
    assert isinstance(found, int)
    return found


def _fits(frame: Frame, wanted: Frame) -> bool:
    return all(frame.get(key) == value and type(frame.get(key)) is type(value)
               for key, value in wanted.items())  # fmt: skip
