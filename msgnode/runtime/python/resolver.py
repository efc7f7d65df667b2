"""Resolves destinations to stubs: hands a message over, has it wait, or answers it.

| status of the entry                  | a message for it                                         |
| none, unloaded                       | waits; one load for all                                  |
| deploying                            | waits                                                    |
| created, in-progress, live,          | goes to the stub, which queues while it is away          |
|   disconnected                       |   (waits if the stub's sandbox died)                     |
| failed                               | 503 with the stub's words; connect() once `retry_at` came |
| deployment-failed                    | the load's code until `retry_at`, then loaded again; the |
|                                      |   home stub meanwhile, if `routing` is "stub-else-node"  |

Rules
- Order of a sender's messages to one address holds through all of it.
- A dead sandbox is started again after a back-off, under the same stub URL; what was asked through
  it is answered 503.
- What does not fit the queue of a destination is answered 503; what waited for a load that failed
  gets that load's code; what is larger than the descriptor's `maxFrame`, 413.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from .announcements import announce
from .destinations import Destination, NoDestination, destination
from .inbound import InboundCheck
from .loader import Loader, LoadError
from .message_bus import MessageBus
from .messages import Message, copy_of, size_of
from .sandbox import SandboxError
from .settings import Settings
from .stub_list import STATES, USABLE, StubEntry, StubList, back_off, status_of

MAX_LOADS = 100  # domains that are looked up at a time
MARKS_SIZE = 256  # bytes of what a stub adds to a message


class Resolver:
    """The way outside of one runtime's bus."""

    def __init__(self, settings: Settings, bus: MessageBus, loader: Loader | None = None) -> None:
        self.settings = settings
        self.bus = bus
        self.stubs = StubList()
        self.loader = loader or Loader(settings, bus.runtime_url)
        self.identity: Any = None
        self._inbound = InboundCheck(settings, bus)
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_closed = False
        self._loading = 0
        self.is_logged_in = False
        bus.outside = self

    # --- messages on their way out ----------------------------------------------------------------

    def send(self, message: Message, size: int, stub: str) -> str:
        """Take a message out; see `Outside` of the MessageBUS."""
        entry = self.stubs.of_url(stub) if stub else None
        if entry is None:
            try:
                entry = self._entry(destination(message["to"], self.settings))
            except NoDestination as error:
                self.bus.refuse(message, error.code, str(error))
                return ""
        entry.last_used = now = self._now()
        if entry.status in USABLE and entry.stub is not None and not entry.waiting:
            return entry.url if self._hand(entry, message) else ""
        if entry.status == "failed" and entry.stub is not None:
            return self._send_to_failed(entry, message, now)
        if entry.status == "deployment-failed" and now < entry.retry_at:
            if self._has_node(entry):
                return self._send_home(message, size)
            self.bus.refuse(message, entry.code, entry.desc)
            return ""
        if not entry.has_room(size):
            text = f"Too many messages wait for the stub of {entry.domain}."
            self.bus.refuse(message, 503, text)
            return ""
        if entry.task is None and self._loading >= MAX_LOADS:
            text = f"Too many domains are being looked up; {entry.domain} is not."
            self.bus.refuse(message, 503, text)
            return ""
        entry.wait(message, size)
        if entry.task is None:
            self.begin_load(entry)
        return entry.url

    def _entry(self, where: Destination) -> StubEntry:
        entry = self.stubs.get(where.key) or self.stubs.add(*where)
        if entry is None or self.is_closed:
            raise NoDestination(503, f"This runtime reaches no more domains: {where.domain}.")
        if self.is_home(entry):
            self.bus.home_stub = entry.url
        return entry

    def _hand(self, entry: StubEntry, message: Message) -> bool:
        most = entry.max_frame
        if most and size_of(message) > most - MARKS_SIZE:
            text = f"The message is larger than the {most} bytes that {entry.domain} takes."
            self.bus.refuse(message, 413, text)
            return False
        entry.sent(message, self._now())
        if entry.stub is not None and entry.stub.post(message):
            return True
        if entry.open.pop((message["from"], str(message["id"])), None) is not None:
            self.bus.refuse(message, 503, f"The stub of {entry.domain} has ended.")
        return False

    def _send_to_failed(self, entry: StubEntry, message: Message, now: float) -> str:
        if now < entry.retry_at:
            text = entry.desc or f"The stub of {entry.domain} has failed."
            self.bus.refuse(message, 503, text)
            return ""
        entry.retry_at = now + back_off(self.settings.retry_load, entry.failures)
        self.spawn(self._connect(entry))
        return entry.url if self._hand(entry, message) else ""

    def _has_node(self, entry: StubEntry) -> bool:
        """Whether the home node stands in for a stub that cannot be loaded."""
        is_node = entry.kind == "protocolstub" and not self.is_home(entry)
        return is_node and self.settings.routing.get(entry.domain) == "stub-else-node"

    def _send_home(self, message: Message, size: int) -> str:
        """Take a message out through the home stub, wherever it is for."""
        home = self.settings.domain
        try:
            return self.send(message, size, self._entry(Destination(home, home)).url)
        except NoDestination as error:
            self.bus.refuse(message, error.code, str(error))
            return ""

    def _let_go(self, entry: StubEntry) -> None:
        for message in entry.take_waiting():
            self._hand(entry, message)

    # --- loading ----------------------------------------------------------------------------------

    def require(self, domain: str) -> StubEntry:
        """Have the stub of a domain loaded without a message for it."""
        entry = self._entry(Destination(domain, domain))
        if entry.stub is None and entry.task is None:
            self.begin_load(entry)
        return entry

    def begin_load(self, entry: StubEntry) -> None:
        """Have an entry's stub loaded in a task of its own."""
        self.enter(entry, "deploying")
        self._loading += 1
        entry.task = self.spawn(self._load(entry))

    async def _load(self, entry: StubEntry) -> None:
        """Load, or start again what was loaded; then let go what waits."""
        try:
            async with asyncio.timeout(self.settings.load):
                await self._start(entry)
        except (LoadError, TimeoutError) as error:
            code = error.code if isinstance(error, LoadError) else 504
            text = str(error) or f"The stub of {entry.domain} could not be loaded in time."
            self.load_failed(entry, code, text)
        except Exception as error:
            self.bus.report("load.failed", f"Loading failed: {error!r}", error=error)
            self.load_failed(entry, 500, f"The stub of {entry.domain} could not be loaded.")
        else:
            entry.code = 0
            if entry.status == "deploying":  # it has not said `created` by itself
                self.enter(entry, "deployed")
            self._let_go(entry)
        finally:
            self._loading -= 1
            entry.task = None
        await self.come_back(entry)

    async def come_back(self, entry: StubEntry, old: Any = None) -> None:
        """Have a stub connect that does so by itself, and subscribe again what the old one had."""
        is_by_itself = self.is_home(entry) and self.is_logged_in
        connecting = [self.spawn(self._connect(entry))] if is_by_itself else []
        await asyncio.sleep(0)  # with the identity, before a message has it connect
        if old is not None:
            await self.stop(old)
        if entry.was_live and entry.stub is not None:
            announce(entry, self.bus, self._tell)
        await asyncio.gather(*connecting)

    async def _start(self, entry: StubEntry) -> None:
        if entry.descriptor is None:
            entry.descriptor, entry.source = await self.loader.fetch(entry.domain, entry.kind)
            entry.checked_at = self._now()
        url = entry.url
        entry.stub = await self.loader.start(
            url, entry.descriptor, entry.source, self.receiver(entry, url), self.ender(entry, url)
        )

    def load_failed(self, entry: StubEntry, code: int, text: str) -> None:
        """A stub cannot be used: until it is tried again that is what messages for it are told."""
        entry.stub, entry.descriptor, entry.source = None, None, ""
        entry.code, entry.desc = code, text
        entry.retry_at = self._now() + back_off(self.settings.retry_load, entry.failures)
        entry.failures += 1
        self.bus.counters["loads.failed"] += 1
        self.enter(entry, "deployment-failed", text)
        if self._has_node(entry) and not self.is_closed:
            for message in entry.take_waiting():
                self._send_home(message, copy_of(message)[1])
        else:
            for message in entry.take_waiting():
                self.bus.refuse(message, code, text)

    def receiver(self, entry: StubEntry, url: str) -> Callable[[Any], None]:
        """What takes the messages of a stub."""
        return lambda message: self._received(entry, url, message)

    def ender(self, entry: StubEntry, url: str) -> Callable[[str], None]:
        """What is told of the end of a stub's sandbox."""
        return lambda reason: self._ended(entry, url, reason)

    # --- messages on their way in -----------------------------------------------------------------

    def _received(self, entry: StubEntry, url: str, raw: Any) -> None:
        """What a stub posts, checked: its status, or a message from outside."""
        entry.last_used = self._now()
        message, refusal = self._inbound.check(raw, url, entry)
        if refusal is not None and entry.stub is not None:
            entry.stub.post(refusal)
        if message is None:
            return
        if message["from"] == url:
            if url == entry.url:
                self._status(entry, message)
            return
        entry.received(message)
        self.bus.receive(message, url)

    def _status(self, entry: StubEntry, message: Message) -> None:
        value, desc, body = status_of(message)
        if value in STATES:
            if value == "failed":
                entry.retry_at = self._now() + back_off(self.settings.retry_load, entry.failures)
                entry.failures += 1
            elif value == "live":
                entry.failures, entry.was_live = 0, True
            entry.enter(value, desc)
        shown = {**body, "value": value or body.get("value")}
        self._tell(entry, {**message, "body": shown})
        if value == "created" and entry.stub is not None:
            self._let_go(entry)

    def enter(self, entry: StubEntry, status: str, desc: str = "") -> None:
        """A change of state that is the runtime's own to tell."""
        entry.enter(status, desc)
        body = {"value": status, "desc": desc} if desc else {"value": status}
        status_url = f"{entry.url}/status"
        self._tell(entry, {"type": "update", "from": entry.url, "to": status_url, "body": body})

    def _tell(self, entry: StubEntry, message: Message) -> None:
        """A status event to its listeners, and a copy to those of the runtime."""
        runtime = self.bus.runtime_url
        self.bus.tell(message)
        body = {**message["body"], "resource": entry.url}
        self.bus.tell({"type": "update", "from": runtime, "to": f"{runtime}/status", "body": body})

    # --- the end of stubs -------------------------------------------------------------------------

    def _ended(self, entry: StubEntry, url: str, reason: str) -> None:
        """A sandbox has ended: by itself, for what it did, or because it is not needed."""
        if url != entry.url or entry.stub is None or self.is_closed:
            return
        entry.stub = None
        self.bus.report("sandbox.ended", f"The sandbox of {entry.domain} has ended: {reason}")
        self.answer_open(entry, f"The sandbox of {entry.domain} has ended: {reason}")
        self.enter(entry, "disconnected", reason)
        delay = back_off(self.settings.retry_sandbox, entry.failures)
        entry.failures += 1
        entry.task = self.spawn(self._start_again(entry, delay))

    async def _start_again(self, entry: StubEntry, delay: float) -> None:
        await asyncio.sleep(delay)
        self._loading += 1
        await self._load(entry)

    def answer_open(self, entry: StubEntry, text: str) -> None:
        """Answer what was asked through a stub that is no more."""
        while entry.open:
            _, (message, _) = entry.open.popitem(last=False)
            self.bus.refuse(message, 503, text)

    async def stop(self, stub: Any) -> None:
        """Disconnect a stub; one that does not is killed."""
        try:
            async with asyncio.timeout(10):
                await stub.stop()
        except Exception as error:
            self.bus.report("stub.stop", f"A stub did not stop: {error!r}", error=error)
            stub.kill("It did not stop.")

    # --- life of the runtime ----------------------------------------------------------------------

    async def log_in(self, identity: Any = None) -> str:
        """Connect the home domain's stub (Domain interface). Returns its state."""
        self.identity, self.is_logged_in = identity, True
        entry = self.require(self.settings.domain)
        if entry.stub is None and entry.task is not None and entry.status != "deploying":
            await asyncio.wait([entry.task])  # an older one is still going
            entry = self.require(self.settings.domain)
        if entry.task is not None:
            await asyncio.wait([entry.task])
        else:
            await self._connect(entry)
        return entry.status

    async def _connect(self, entry: StubEntry) -> None:
        """Have a stub connect; nobody's identity but that of home goes to home, and no other."""
        if entry.stub is None:
            return
        entry.expect_live(self._now())
        try:
            await entry.stub.connect(self.identity if self.is_home(entry) else None)
        except (SandboxError, OSError) as error:
            self.bus.report("stub.connect", f"{entry.domain}: {error}", error=error)

    async def close(self) -> None:
        """Disconnect every stub and end every sandbox."""
        self.is_closed = True
        entries = list(self.stubs)
        for entry in entries:
            for message in entry.take_waiting():
                self.bus.refuse(message, 503, "The runtime closes.")
        stubs = [entry.stub for entry in entries if entry.stub is not None]
        await asyncio.gather(*(self.stop(stub) for stub in stubs))
        for entry in entries:
            self.answer_open(entry, "The runtime closes.")
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.loader.close()

    def is_home(self, entry: StubEntry) -> bool:
        """Whether an entry is that of the home domain's stub."""
        return entry.key == self.settings.domain

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that ends with the resolver."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
