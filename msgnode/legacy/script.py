"""An access network that the script of the connector `legacy` speaks to.

Rules
- The script has the protocol alone: it gets one message or step of a call after another, and says
  what has happened. Addresses, the queue, limits, who takes what, and calls are the node's.
- Who of this node writes there is lent an address. Somebody there has an address of the network's
  domain: whatever the script says of another is dropped, and raises an alarm.
- The network is live when the script says so. It is lost when the script ends, or says that.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Literal, Protocol

import msgspec

from msgnode.core import addresses
from msgnode.core.errors import BadMessage, Forbidden, NodeError, NotFound, TooMany, Unavailable
from msgnode.core.faults import FAULTS
from msgnode.core.messages import Message, error_body

from .address_pool import AddressPool, is_lent
from .calls import Call, Calls
from .descriptions import Candidate, Description, sdp_fault
from .network import (
    CALL,
    LENT,
    POSING_ALARM,
    Here,
    LegacySettings,
    Lost,
    NotAdmitted,
    NotSupported,
    TooLarge,
    shown,
)
from .parties import Parties, written_in

WINDOW, MAX_TEXT = 200, 64 * 1024
_UNAVAILABLE = 480  # of SIP: temporarily
BEGIN_SECONDS, FIND_SECONDS = 30.0, 10.0
"""For the script to be live; for who takes a call to be found."""


_LOST = Unavailable("The network was lost.")


class State(msgspec.Struct, frozen=True):
    """How the network is."""

    state: Literal["live", "connecting", "refused"]
    text: str = ""


class Text(msgspec.Struct, frozen=True):
    """A message of somebody there, for a name of ours."""

    sender: str = msgspec.field(name="from")
    to: str
    text: str


class CallEvent(msgspec.Struct, frozen=True):
    """What has happened in a call; `sender` calls `to`, which has no `call` yet."""

    event: Literal["called", "rings", "accepted", "refused", "described", "ended"]
    type: Literal["offer", "answer"] = "offer"
    call: str = ""
    sender: str = msgspec.field(name="from", default="")
    to: str = ""
    sdp: str = ""
    code: int = _UNAVAILABLE
    text: str = ""


class ScriptPort(Protocol):
    """The port of the script."""

    hear: Callable[[str, bytes], Awaitable[Any]]

    async def call(self, method: str, argument: Any, type_: Any) -> Any:
        """Call a method of the script. Raises NodeError."""
        ...

    async def run_end(self) -> asyncio.Future[str]:
        """When the script that runs ends, and why. Raises NodeError."""
        ...


class ScriptNetwork:
    """One instance per network that this worker serves. Implements LegacyNetwork and Signalling.

    Args:
        settings: of the network.
        port: the script's.
        here: this node.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        settings: LegacySettings,
        port: ScriptPort,
        here: Here,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._port = port
        self._here = here
        self._clock = clock
        self.pool = AddressPool(settings.pool, here, clock)
        self._parties = Parties(
            here, self.pool, lambda _: "", lambda _: "", settings, clock, lends_to_all=True
        )
        self.calls = Calls(settings.domain, here, self, clock)
        self.restores = {LENT: self.pool.restore, CALL: self.calls.restore}
        self._is_live = False
        self._over: asyncio.Future[Lost] | None = None
        self._begin_until = 0.0
        self._tasks: set[asyncio.Task[None]] = set()

    # --- the connection ---------------------------------------------------------------------------

    async def serve(self) -> None:
        """Have the script connect, and serve until it or its connection ends. Raises Lost."""
        self._over = over = asyncio.get_running_loop().create_future()
        self._begin_until = self._clock() + BEGIN_SECONDS
        ended: asyncio.Future[str] | None = None
        try:
            async with asyncio.timeout(BEGIN_SECONDS):
                ended = await self._port.run_end()
                self._port.hear = self._heard
                accounts = {"domain": self._settings.domain, "accounts": self.pool.names}
                await self._port.call("start", accounts, Any)
            done, _ = await asyncio.wait({over, ended}, return_when=asyncio.FIRST_COMPLETED)
            raise over.result() if over in done else Lost(f"the script ended: {ended.result()}")
        except TimeoutError:
            raise Lost(f"the script has not begun within {BEGIN_SECONDS:g} s") from None
        except NodeError as error:
            raise Lost(error.description) from None
        finally:
            self._is_live, self._over = False, None
            if ended is not None:
                ended.cancel()
            for task in list(self._tasks):
                task.cancel()
            self.calls.end_all("The network was lost.")
            self._ask("stop", {}, lambda _: None)

    def _give_up(self, why: Lost) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(why)

    def abort(self) -> None:
        """End the connection at once."""
        self._give_up(Lost("it was ended here"))

    @property
    def has_room(self) -> bool:
        """Whether a message may be sent now."""
        return self._is_live and len(self._tasks) < WINDOW

    @property
    def due(self) -> float:
        """When `tick` has something to do next."""
        is_beginning = self._over is not None and not self._is_live
        begun = self._begin_until if is_beginning else math.inf
        return min(self.calls.due, self.pool.due, begun)

    def tick(self) -> None:
        """Look at what has a time limit."""
        if not self._is_live and self._clock() >= self._begin_until:
            self._give_up(Lost(f"the script is not live within {BEGIN_SECONDS:g} s"))
        self.calls.tick()
        self.pool.sweep()

    # --- to the network ---------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        """Give a message to the script. Raises NodeError if that cannot be."""
        if self.calls.take(message):
            return
        text, to = written_in(message), message.recipients[0]
        if not text:
            return
        if len(text) > MAX_TEXT:
            raise TooLarge(f"The text has {len(text):,} characters, and may have {MAX_TEXT:,}.")
        name = self._parties.name_of(message.sender)
        self._parties.wrote(to, name, message.sender)
        self._ask("send", {"to": to, "as": name, "text": text}, partial(self._sent, message))

    def _sent(self, message: Message, fault: NodeError | None) -> None:
        if fault is _LOST and self._here.is_stored(message):
            return  # it is sent again
        body = {"code": 200, "desc": "sent"} if fault is None else error_body(fault)
        self._here.answer(message, body)

    def _ask(
        self, method: str, argument: dict[str, Any], then: Callable[[NodeError | None], None]
    ) -> None:
        """Call the script, and go on with its refusal, or None."""

        async def ask() -> None:
            fault: NodeError | None = _LOST
            try:
                await self._port.call(method, argument, Any)
                fault = None
            except NodeError as error:
                fault = error
            finally:
                with FAULTS.kept_to("legacy network"):
                    then(fault)
            self._here.wake()

        self._spawn(ask())

    def _spawn(self, job: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(job)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def subscribe(self, message: Message) -> None:
        """Refuse a request for the presence of users there."""
        raise NotSupported("The network does not say who is there.")

    # --- Signalling -------------------------------------------------------------------------------

    def invite(self, call: Call) -> None:
        """Call the party with the call's offer."""
        call.network = name = self._parties.name_of(call.here)
        self._parties.wrote(call.party, name, call.here)
        self._do(call, "invite", to=call.party, sdp=call.offer.whole_sdp, **{"as": name})

    def ring(self, call: Call) -> None:
        """Say that it rings here."""
        self._do(call, "ring")

    def accept(self, call: Call, answer: Description) -> None:
        """Answer the party's call."""
        self._do(call, "accept", sdp=answer.whole_sdp)

    def trickle(self, call: Call, candidate: Candidate) -> None:
        """Pass nothing on: a description there has all candidates."""

    def describe(self, call: Call, description: Description) -> None:
        """Pass a new offer of a live call on, or the answer to the party's."""
        self._do(call, "describe", type=description.type, sdp=description.whole_sdp)

    def hang_up(self, call: Call, code: int, text: str) -> None:
        """End a call that the network has not ended."""
        self._do(call, "hangUp", code=code, text=text)

    def kept(self, call: Call) -> str:
        """Nothing: a call ends with the script."""
        return ""

    def restored(self, call: Call, text: str) -> None:
        """Nothing was kept of it."""

    def _do(self, call: Call, action: str, **more: Any) -> None:
        def failed(fault: NodeError | None) -> None:
            if fault is not None:
                self.calls.refused(call, fault.code, fault.description)

        self._ask("call", {"action": action, "call": call.id, **more}, failed)

    # --- from the network -------------------------------------------------------------------------

    async def _heard(self, event: str, value: bytes) -> Any:
        """Take what the script says has happened. Raises NodeError."""
        if self._over is None:
            raise _LOST
        try:
            if event == "state":
                return self._entered(msgspec.json.decode(value, type=State))
            if event == "message":
                return await self._wrote(msgspec.json.decode(value, type=Text))
            return await self._called(msgspec.json.decode(value, type=CallEvent))
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadMessage(f"What has happened is not as it should be: {error}"[:300]) from None

    def _entered(self, said: State) -> None:
        if said.state == "live":
            self._is_live = True
            self._here.live()
            self.calls.end_lost()
        elif said.state == "refused":
            self._give_up(NotAdmitted(said.text[:300] or "the network refuses this node"))
        elif self._is_live:  # else it is given its time
            self._give_up(Lost(said.text[:300] or "the connection was lost"))

    def _check(self, sender: str, to: str) -> None:
        """Whether somebody there may write to, or call, a name of ours. Raises NodeError."""
        home = "" if addresses.fault(sender) else addresses.parse(sender).home
        if home != self._settings.domain:
            told = f"Somebody there says that he is {shown(sender)}"
            self._here.refused(told)
            self._here.raise_alarm(POSING_ALARM, f"{told}, which is none of the network's.")
            raise Forbidden(f"{sender[:200]} is no address of {self._settings.domain}.")
        if not is_lent(to):
            raise NotFound(f"{to[:200]} is no address of this node.")
        if not self._parties.is_within_rate(sender):
            raise TooMany("Too many messages.")

    async def _wrote(self, said: Text) -> dict[str, Any]:
        """Deliver a message; with what code it was taken."""
        self._check(said.sender, said.to)
        answered: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()

        def done(code: int, why: str) -> None:
            if not answered.done():
                answered.set_result((code, why))

        self._parties.deliver(said.sender, said.to, said.text[:MAX_TEXT], done)
        code, why = await answered
        return {"code": code, "text": why}

    async def _called(self, said: CallEvent) -> dict[str, Any]:
        """Take a step of a call; of a new one, its id."""
        if said.event == "called":
            return {"call": (await self._begun(said)).id}
        if (call := self.calls.of(said.call)) is None:
            raise NotFound("There is no such call.")
        if said.event in ("accepted", "described") and (fault := sdp_fault(said.sdp)):
            self._do(call, "hangUp", code=400, text=f"The description {fault}.")
            self.calls.refused(call, 502, f"The description of the other side {fault}.")
        elif said.event == "rings":
            self.calls.rings(call)
        elif said.event == "accepted":
            self.calls.accepted(call, Description("answer", said.sdp))
        elif said.event == "described":
            self.calls.described(call, Description(said.type, said.sdp))
        elif said.event == "refused":
            code = said.code if 400 <= said.code < 700 else 502
            self.calls.refused(call, code, said.text[:200])
        else:
            self.calls.hung_up(call, said.text[:200])
        return {}

    async def _begun(self, said: CallEvent) -> Call:
        """Have somebody there call who has a name of ours. Raises NodeError."""
        self._check(said.sender, said.to)
        if fault := sdp_fault(said.sdp):
            raise BadMessage(f"The description {fault}.")
        found: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def then(hyperty: str) -> None:
            if not found.done():
                found.set_result(hyperty)

        self._parties.find(said.sender, said.to, then, is_call=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(FIND_SECONDS):
                if hyperty := await found:
                    offer = Description("offer", said.sdp)
                    return self.calls.called(said.sender, hyperty, offer, said.to)
        raise NotFound("Nobody is there.")
