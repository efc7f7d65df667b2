"""Calls between users of this node and of a legacy network, whatever that network speaks. Pure.

    create     {value: {connectionDescription: {type: "offer", sdp}, iceCandidates}}: a call
    response   100 while it rings; 200 {resource, value} with the answer; or why not
    update     {resource, attribute: "iceCandidates.0", value: {candidate, sdpMid, sdpMLineIndex}}
    update     {resource, attribute: "connectionDescription", value: {type, sdp}}
    delete     {resource}: the end

Both sides say the same. `resource` is the connection object of the call,
`connection://<network>/<id>`; without it a message is about the call between its two addresses.

Rules
- A call is between the address here that sent or took the `create`, and a user there.
- Until it is answered, candidates of the network wait, and come with the answer or right after it.
- Who calls from here hears 100 every ten seconds while it rings there. A side that gives no sign
  for fourteen seconds is not there (504, 408); nobody's rings for more than three minutes.
- A call ends when the runtime here has no session any more.
"""

from __future__ import annotations

import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, Protocol

from msgnode.core.errors import BadMessage, Conflict, NodeError, NotFound, Unavailable
from msgnode.core.messages import Message

from .descriptions import (
    CANDIDATES,
    DESCRIPTION,
    MAX_CANDIDATES,
    Candidate,
    Description,
    candidates_in,
    description_in,
)
from .network import CALL, Here, NotSupported

MAX_CALLS = 200
SIGN_SECONDS, RING_SECONDS, REPEAT_SECONDS, LOOK_SECONDS = 14.0, 180.0, 10.0, 5.0
"""The bus of a runtime waits 15 s for an answer, and again after each that is provisional."""
TIMED_OUT, NO_SIGN, CANCELLED, NORMAL = 408, 504, 487, 200
SCHEMA = "hyperty-catalogue://catalogue.{}/.well-known/dataschema/Connection"


class CallState(StrEnum):
    """Where a call is."""

    CALLING = "calling"
    RINGING = "ringing"
    LIVE = "live"
    OVER = "over"


@dataclass(eq=False, slots=True)
class Call:
    """One call.

    Attributes:
        id: of the call in this network: part of its address here.
        here: the address of the runtime that calls, or is called.
        party: the address of the user there.
        is_outgoing: whether it was begun here.
        offer: how it was begun.
        state: where it is.
        network: what the network keeps about it.
    """

    id: str
    here: str
    party: str
    is_outgoing: bool
    offer: Description
    runtime: str = ""
    state: CallState = CallState.CALLING
    network: Any = None
    message: Message | None = None
    until: float = math.inf
    repeat_at: float = 0.0
    began_at: float = 0.0
    early: list[Candidate] = field(default_factory=list)  # of the party, before the answer
    kept: str = ""
    sent: int = 0  # candidates, in either direction
    heard: int = 0


class Signalling(Protocol):
    """What a network does for a call. Each raises NodeError if it cannot."""

    def invite(self, call: Call) -> None:
        """Call the party with the call's offer."""
        ...

    def ring(self, call: Call) -> None:
        """Say that it rings here; called once."""
        ...

    def accept(self, call: Call, answer: Description) -> None:
        """Answer the party's call."""
        ...

    def trickle(self, call: Call, candidate: Candidate) -> None:
        """Pass a candidate on."""
        ...

    def describe(self, call: Call, description: Description) -> None:
        """Pass a new offer of a live call on, or the answer to the party's."""
        ...

    def hang_up(self, call: Call, code: int, text: str) -> None:
        """End a call that the network has not ended: refuse, withdraw or leave it.

        Args:
            call: its state is what it was until now.
            code: NORMAL when somebody hangs up, CANCELLED by who calls before it is answered,
                TIMED_OUT, or the code of who was called here, of 400 and more.
            text: the reason, for people; may be empty.
        """
        ...

    def kept(self, call: Call) -> str:
        """What the worker that serves the network next has to know to end a call; may be empty."""
        ...

    def restored(self, call: Call, text: str) -> None:
        """Take up a call of the worker before, which has kept this text, so that it can end."""
        ...


class Calls:
    """The calls of one network.

    The network calls `called`, and then what is named after what its user does: `rings`,
    `accepted`, `refused`, `trickled`, `described`, `hung_up`.

    Args:
        domain: of the network.
        here: this node.
        signalling: the network.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        domain: str,
        here: Here,
        signalling: Signalling,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._domain = domain
        self._here = here
        self._signalling = signalling
        self._clock = clock
        self._calls: OrderedDict[str, Call] = OrderedDict()
        self._looks_at = 0.0
        self._lost: list[Call] = []

    def restore(self, here: str, text: str) -> None:
        """Note a call of the worker before: it ends with `end_lost`."""
        party, _, kept = text.partition("\n")
        call = Call(secrets.token_hex(12), here, party, False, Description("offer", ""))
        call.state, call.kept = CallState.LIVE, text
        self._signalling.restored(call, kept)
        self._calls[call.id] = call
        self._lost.append(call)

    def end_lost(self) -> None:
        """End the calls of the worker before, once the network is live."""
        lost, self._lost = self._lost, []
        for call in lost:
            self._end(call, Unavailable.code, "The gateway was interrupted.")

    def __len__(self) -> int:
        return len(self._calls)

    def of(self, id_: str) -> Call | None:
        """The call with an id."""
        return self._calls.get(id_)

    def between(self, here: str, party: str) -> Call | None:
        """The latest call between two addresses."""
        here = here.removesuffix("/subscription")
        found = (each for each in reversed(self._calls.values()) if each.party == party)
        return next(
            (each for each in found if each.here.removesuffix("/subscription") == here), None
        )

    # --- from the runtime -------------------------------------------------------------------------

    def take(self, message: Message) -> bool:
        """Take a message of a runtime here, if it is about a call; whether it is.

        Raises:
            NodeError: it is, and cannot be.
        """
        body = message.fields()
        value = body.get("value")
        if message.type == "create" and isinstance(value, dict) and DESCRIPTION in value:
            self._begin(message, description_in(value))
            return True
        to = message.recipients[0]
        is_about_one = to.startswith("connection://") or str(body.get("resource", "")).startswith(
            "connection://"
        )
        is_change = message.type == "update" and _is_about_a_call(body.get("attribute"))
        if message.type not in ("update", "delete") or not (
            is_about_one or is_change or message.type == "delete"
        ):
            return False
        call = self._meant(message.sender, to, body)
        if message.type == "update":
            self._change(call, str(body.get("attribute")), value)
        else:
            self._drop(call, CANCELLED if call.is_outgoing else NORMAL, _text_of(body))
        self._here.answer(message, {"code": 200})
        return True

    def _begin(self, message: Message, description: Description) -> None:
        """Take a `create` with a description: a call, or the answer to one."""
        to = message.recipients[0]
        if description.type == "answer":
            call = self._meant(message.sender, to, message.fields())
            self._accept(call, description)
            self._here.answer(message, {"code": 200})
            return
        self._check_room()
        id_ = secrets.token_hex(12)
        call = Call(id_, message.sender, to, True, description, message=message)
        self._add(call)
        try:
            self._signalling.invite(call)
        except BaseException:
            self._forget(call)
            raise

    def _meant(self, sender: str, to: str, body: Mapping[str, Any]) -> Call:
        """The call that a message is about. Raises NotFound."""
        resource = str(body.get("resource") or (to if to.startswith("connection://") else ""))
        if resource:
            call = self._calls.get(resource.removeprefix(f"connection://{self._domain}/"))
            is_theirs = call is not None and self._is_party(call, sender)
            call = call if is_theirs else None
        else:
            call = self.between(sender, to)
        if call is None:
            raise NotFound("There is no such call.")
        return call

    def _is_party(self, call: Call, sender: str) -> bool:
        """Whether an address here is the one of a call, or of its runtime."""
        if _object(call.here) == _object(sender):
            return True
        return bool(call.runtime) and self._here.runtime_of(sender) == call.runtime

    def _change(self, call: Call, attribute: str, value: Any) -> None:
        if attribute.partition(".")[0] == CANDIDATES:
            for each in candidates_in(value):
                if call.sent >= MAX_CANDIDATES:
                    raise Unavailable(f"A call may have {MAX_CANDIDATES} candidates.")
                call.sent += 1
                self._signalling.trickle(call, each)
        elif attribute == DESCRIPTION:
            description = description_in({DESCRIPTION: value})
            if call.state is CallState.LIVE:
                self._signalling.describe(call, description)
            elif description.type == "answer":
                self._accept(call, description)
            else:
                raise Conflict("The call is not answered yet.")
        else:
            raise NotSupported(f"Of a call, {DESCRIPTION} and {CANDIDATES} can be changed.")

    def _accept(self, call: Call, answer: Description) -> None:
        if call.is_outgoing or call.state is CallState.LIVE:
            raise Conflict("The call does not wait for an answer.")
        if answer.type != "answer":
            raise BadMessage("The description must be an answer.")
        call.until = math.inf
        self._signalling.accept(call, answer)
        call.state = CallState.LIVE
        self._tell_early(call)

    def _drop(self, call: Call, code: int, text: str) -> None:
        """End a call for the network; the runtime knows, or is told by who asks for it."""
        if call.state is CallState.OVER:
            return
        if code == CANCELLED and call.state is CallState.LIVE:
            code = NORMAL
        self._forget(call)
        try:
            self._signalling.hang_up(call, code, text)
        except NodeError as error:
            self._here.refused(error.description)
        was_live = call.state is CallState.LIVE
        call.state = CallState.OVER
        if call.is_outgoing and not was_live:
            self._answer(call, code if code >= 400 else CANCELLED, text or "The call was ended.")

    # --- from the network -------------------------------------------------------------------------

    def called(self, party: str, here: str, offer: Description, network: Any = None) -> Call:
        """Have somebody there call an address here.

        Args:
            party: the address of who calls.
            here: the address that takes calls.
            offer: what is offered.
            network: what the network keeps about the call.

        Raises:
            Unavailable: there are too many calls.
        """
        self._check_room()
        call = Call(secrets.token_hex(12), here, party, False, offer, network=network)
        self._add(call)
        self._keep(call)
        self._ask(call)
        return call

    def _ask(self, call: Call) -> None:
        url = self.url_of(call)
        named = {"name": "connection", "reporter": call.party, "owner": call.party, "url": url}
        value = {**named, "status": "", **call.offer.value}
        schema = SCHEMA.format(self._domain)
        body = {"resource": url, "source": call.party, "schema": schema, "value": value}
        self._here.ask("create", call.party, call.here, body, partial(self._said, call))

    def url_of(self, call: Call) -> str:
        """The address of a call's connection object."""
        return f"connection://{self._domain}/{call.id}"

    def _said(self, call: Call, code: int, body: dict[str, Any]) -> None:
        """Take the answer of who is called here."""
        if call.state in (CallState.OVER, CallState.LIVE):
            return
        if code < 200:
            self._sign(call)
            if call.state is CallState.CALLING:
                call.state = CallState.RINGING
                self._guarded(call, partial(self._signalling.ring, call))
            return
        if code >= 300:
            self._drop(call, code, _text_of(body))
            return
        value = body.get("value")
        if not isinstance(value, dict) or DESCRIPTION not in value:
            self._sign(call)  # the answer comes in an object of its own
            return
        self._guarded(call, lambda: self._accept(call, description_in(value)))

    def _guarded(self, call: Call, action: Callable[[], None]) -> None:
        """Do something for a call; it ends if that cannot be."""
        try:
            action()
        except NodeError as error:
            self._here.refused(error.description)
            self._end(call, error.code, error.description)

    def rings(self, call: Call, is_ringing: bool = True) -> None:
        """Note a sign of who is called there: it rings, or is being tried."""
        if call.state not in (CallState.CALLING, CallState.RINGING):
            return
        call.until = call.began_at + RING_SECONDS
        if is_ringing and call.state is CallState.CALLING:
            call.state, call.repeat_at = CallState.RINGING, 0.0
        self._repeat(call, self._clock())

    def accepted(self, call: Call, answer: Description) -> None:
        """Note that the party has answered."""
        if not call.is_outgoing or call.state not in (CallState.CALLING, CallState.RINGING):
            return
        early, call.early = tuple(call.early), []
        whole = answer._replace(candidates=(*answer.candidates, *early))
        call.state, call.until = CallState.LIVE, math.inf
        self._keep(call)
        self._answer(call, 200, "", {"resource": self.url_of(call), "value": whole.value})

    def refused(self, call: Call, code: int, text: str) -> None:
        """Note that a call was refused there, or cannot be."""
        if call.state is CallState.OVER:
            return
        self._forget(call)
        was_live, call.state = call.state is CallState.LIVE, CallState.OVER
        if call.is_outgoing and not was_live:
            self._answer(call, code, text)
        else:
            self._end_here(call, code, text)

    def trickled(self, call: Call, candidate: Candidate) -> None:
        """Pass a candidate of the party on, once the call is answered; the 33rd is dropped."""
        if call.heard >= MAX_CANDIDATES:
            return
        call.heard += 1
        if call.state is CallState.LIVE:
            self._tell(call, f"{CANDIDATES}.{call.heard - 1}", candidate.value)
        else:
            call.early.append(candidate)

    def described(self, call: Call, description: Description) -> None:
        """Pass a new offer of the party on, or its answer to one of the runtime."""
        if call.state is CallState.LIVE:
            said = {"type": description.type, "sdp": description.sdp}
            self._tell(call, DESCRIPTION, said)

    def hung_up(self, call: Call, text: str = "") -> None:
        """Note that the party has ended the call."""
        self.refused(call, CANCELLED, text or "The call was ended.")

    # --- in time ----------------------------------------------------------------------------------

    @property
    def due(self) -> float:
        """When `tick` has something to do next."""
        if not self._calls:
            return math.inf
        each = (min(call.until, call.repeat_at or math.inf) for call in self._calls.values())
        return min(self._looks_at, *each)

    def tick(self) -> None:
        """Look at what has a time limit."""
        now = self._clock()
        for call in [each for each in self._calls.values() if each.until <= now]:
            rang = call.state is CallState.RINGING
            code = NO_SIGN if call.is_outgoing and not rang else TIMED_OUT
            text = "Nobody has answered the call."
            if not call.is_outgoing:
                self._end_here(call, code, text)
            self._drop(call, code, text)
        for call in self._calls.values():
            self._repeat(call, now)
        if now >= self._looks_at:
            self._looks_at = now + LOOK_SECONDS
            for call in list(self._calls.values()):
                self._look(call)

    def _repeat(self, call: Call, now: float) -> None:
        """Tell who calls from here that it rings, or is tried, if that is due."""
        if call.is_outgoing and call.state is not CallState.LIVE and call.repeat_at <= now:
            call.repeat_at = now + REPEAT_SECONDS
            self._answer(call, 100, call.state.value)

    def _look(self, call: Call) -> None:
        runtime = self._here.runtime_of(call.here)
        if runtime:
            call.runtime = runtime
        elif call.runtime:
            gone = partial(self._drop, call, NORMAL, "The runtime has gone.")
            self._here.if_gone(call.runtime, gone)

    def end_all(self, text: str) -> None:
        """End all calls, because the network is left."""
        for call in list(self._calls.values()):
            self._end(call, Unavailable.code, text)

    def _end(self, call: Call, code: int, text: str) -> None:
        """End a call for both sides."""
        self._end_here(call, code, text)
        self._drop(call, code, text)

    def _check_room(self) -> None:
        if len(self._calls) >= MAX_CALLS:
            raise Unavailable(f"There are {MAX_CALLS} calls with {self._domain} already.")

    def _add(self, call: Call) -> None:
        call.began_at = self._clock()
        call.runtime = self._here.runtime_of(call.here)
        self._calls[call.id] = call
        self._sign(call)

    def _sign(self, call: Call) -> None:
        """Note a sign of life of who is called."""
        call.until = min(self._clock() + SIGN_SECONDS, call.began_at + RING_SECONDS)

    def _keep(self, call: Call) -> None:
        if text := self._signalling.kept(call):
            call.kept = f"{call.party}\n{text}"
            self._here.keep(CALL, call.here, call.kept)

    def _forget(self, call: Call) -> None:
        self._calls.pop(call.id, None)
        if call.kept:
            self._here.keep(CALL, call.here, call.kept, is_kept=False)

    # --- to the runtime ---------------------------------------------------------------------------

    def _answer(
        self, call: Call, code: int, text: str, more: Mapping[str, Any] | None = None
    ) -> None:
        if call.message is not None:
            said = {"code": code, "description": text[:200]} if text else {"code": code}
            self._here.answer(call.message, {**said, **(more or {})})
            if code >= 200:
                call.message = None

    def _tell(self, call: Call, attribute: str, value: Any) -> None:
        body = {"resource": self.url_of(call), "attribute": attribute, "value": value}
        self._here.tell(call.party, call.here, body)

    def _tell_early(self, call: Call) -> None:
        early, call.early = call.early, []
        call.heard -= len(early)
        for each in early:
            self.trickled(call, each)

    def _end_here(self, call: Call, code: int, text: str) -> None:
        """Tell the runtime that a call is over."""
        body = {"resource": self.url_of(call), "code": code, "description": text[:200]}
        self._here.ask("delete", call.party, call.here, body, lambda *_: None)


def _object(address: str) -> str:
    """The address of an object, for its own and that of its subscriptions."""
    return address.removesuffix("/subscription")


def _is_about_a_call(attribute: Any) -> bool:
    return str(attribute).partition(".")[0] in (DESCRIPTION, CANDIDATES)


def _text_of(body: Mapping[str, Any]) -> str:
    return str(body.get("description") or body.get("desc") or "")[:200]
