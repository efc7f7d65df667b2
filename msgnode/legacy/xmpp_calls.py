"""Calls with users of an XMPP network: Jingle (XEP-0166), announced by Jingle messages (XEP-0353).

    create with an offer       <propose/> to the user, unless the address has a resource;
                               <session-initiate/> to the client that answers <proceed/>
    100, 200 with the answer   <ringing/>, <session-accept/>
    a refusal, delete          <session-terminate/> with a reason; <reject/> or <retract/> before
    iceCandidates              <transport-info/>

Rules
- A client is a party of the sessions that it began or has accepted; of others it is told that there
  is no such session. Each request is answered at once.
- If both sides call each other, the session with the lower id counts (XEP-0166, section 7.2.16).
- Once a call is live, its media stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from msgnode.core.errors import BadMessage, GatewayTimeout, NodeError, NotFound

from .calls import CANCELLED, MAX_CALLS, NORMAL, Call, Calls, CallState
from .descriptions import MAX_CANDIDATES, Candidate, Description
from .jingle import (
    JINGLE,
    RTP,
    RTP_INFO,
    candidates_in_info,
    from_jingle,
    info_of,
    parts_of,
    to_jingle,
)
from .network import Here, NotSupported
from .parties import Parties
from .xmpp_addresses import Jid, XmppAddresses, jid_of
from .xmpp_errors import error_element, error_in
from .xmpp_stream import Element, Gateway, tag, text_of

MESSAGES = "urn:xmpp:jingle-message:0"
ERRORS = "urn:xmpp:jingle:errors:1"
RESOURCE = "node"
MAX_SID = 100
_HINTS = "urn:xmpp:hints"
_REASONS = {
    NORMAL: "success", CANCELLED: "cancel", 403: "decline", 404: "gone", 408: "timeout",
    480: "gone", 486: "busy", 488: "incompatible-parameters", 400: "failed-transport",
    501: "unsupported-applications", 503: "gone", 504: "timeout", 603: "decline",
}  # fmt: skip
_CODES = {
    "busy": 486, "cancel": CANCELLED, "decline": 403, "expired": 408, "gone": 480, "timeout": 408,
    "success": 480, "incompatible-parameters": 488, "unsupported-applications": 488,
    "unsupported-transports": 488, "failed-application": 488, "failed-transport": 488,
}  # fmt: skip
_MESSAGES = ("propose", "proceed", "ringing", "reject", "retract", "accept", "finish")


@dataclass(slots=True)
class Session:
    """What Jingle has about a call.

    Attributes:
        sid: its id there.
        their, ours: the parties; `their` has no resource until a client has answered.
        names: of the contents of the session, in the order of its media.
        access: `ice-ufrag` and `ice-pwd` of each medium here.
        is_begun: whether there is a session, and not only a message about one.
        waiting: candidates that came before it was, or before it was known who is called.
        call: the call, None while it is not known who is called.
    """

    sid: str
    their: Jid
    ours: Jid
    names: list[str] = field(default_factory=list)
    access: list[tuple[str, str]] = field(default_factory=list)
    is_begun: bool = False
    waiting: list[Candidate] = field(default_factory=list)
    call: Call | None = None

    @property
    def key(self) -> tuple[str, str]:
        """What it is found by: ids of sessions are of the user who begins them."""
        return self.their.bare, self.sid


class XmppCalls:
    """The calls of one network. Implements Signalling.

    Args:
        addresses: maps addresses.
        here: this node.
        gateway: the network.
        parties: finds who takes a call.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        addresses: XmppAddresses,
        here: Here,
        gateway: Gateway,
        parties: Parties,
        clock: Callable[[], float],
    ) -> None:
        self.calls = Calls(addresses.domain, here, self, clock)
        self._addresses = addresses
        self._here = here
        self._gateway = gateway
        self._parties = parties
        self._sessions: dict[tuple[str, str], Session] = {}

    # --- Signalling -------------------------------------------------------------------------------

    def invite(self, call: Call) -> None:
        """Call a user there: his client, if the address names one, else each that he has."""
        their = self._addresses.jid(call.party)
        local = self._parties.name_of(call.here)
        ours = Jid(local, self._addresses.component, RESOURCE)
        session = call.network = Session(call.id, their, ours, call=call)
        _, parts = parts_of(call.offer.sdp)
        self._describe_ours(session, call.offer.sdp)
        to_jingle(call.offer, "initiator")  # what cannot be said is refused before he is called
        self._sessions[session.key] = session
        if their.resource:
            self._initiate(call, session)
            return
        media = [each.kind for each in parts if each.kind != "application"] or ["audio"]
        said = [tag("description", {"xmlns": RTP, "media": each}) for each in dict.fromkeys(media)]
        self._message(session, "propose", *said)

    def _initiate(self, call: Call, session: Session) -> None:
        session.is_begun = True
        session.names = [part.first("mid") for part in parts_of(call.offer.sdp)[1]]
        offer = call.offer._replace(candidates=(*call.offer.candidates, *session.waiting))
        session.waiting = []

        def said(answer: Element | None) -> None:
            if answer is not None and answer.get("type") != "error":
                self.calls.rings(call, is_ringing=False)
                return
            fault: NodeError = GatewayTimeout(f"{session.their} does not answer.")
            if answer is not None:
                fault = error_in(answer, session.their.bare)
            self._forget(session)
            self.calls.refused(call, fault.code, fault.description)

        head = {"initiator": str(session.ours)}
        self._ask(session, "session-initiate", head, to_jingle(offer, "initiator"), said)

    def ring(self, call: Call) -> None:
        """Say that it rings here."""
        session: Session = call.network
        self._ask(session, "session-info", {}, [tag("ringing", {"xmlns": RTP_INFO})])

    def accept(self, call: Call, answer: Description) -> None:
        """Accept a session."""
        session: Session = call.network

        def said(element: Element | None) -> None:
            if element is None or element.get("type") == "error":
                self._forget(session)
                self.calls.hung_up(call, "His client has not taken the answer.")

        self._describe_ours(session, answer.sdp)
        head = {"responder": str(session.ours)}
        self._ask(session, "session-accept", head, to_jingle(answer, "responder"), said)

    def trickle(self, call: Call, candidate: Candidate) -> None:
        """Pass a candidate on."""
        session: Session = call.network
        if call.is_outgoing and not session.is_begun:
            session.waiting.append(candidate)
            return
        if not session.access:
            raise BadMessage("Answer the call before its candidates.")
        place = candidate.line if candidate.line < len(session.names) else 0
        place = session.names.index(candidate.mid) if candidate.mid in session.names else place
        ufrag, password = session.access[min(place, len(session.access) - 1)]
        info = info_of(session.names[place], ufrag, password, candidate)
        self._ask(session, "transport-info", {}, [info])

    def describe(self, call: Call, description: Description) -> None:
        """Refuse to change a call."""
        raise NotSupported("The media of a call with an XMPP user cannot be changed.")

    def hang_up(self, call: Call, code: int, text: str) -> None:
        """End a session, or what announced it."""
        session: Session = call.network
        self._forget(session)
        if call.is_outgoing and not session.is_begun:
            self._message(session, "retract")
        else:
            self._terminate(session, _REASONS.get(code, "failed-application"), text)

    def kept(self, call: Call) -> str:
        """The session of a call as a text."""
        session: Session = call.network
        return "\n".join((session.sid, str(session.their), str(session.ours)))

    def restored(self, call: Call, text: str) -> None:
        """Take up the session of a call of the worker before."""
        sid, their, ours = (text.split("\n") + ["", ""])[:3]
        session = Session(sid, jid_of(their), jid_of(ours), is_begun=True, call=call)
        call.network = self._sessions[session.key] = session

    # --- from the network -------------------------------------------------------------------------

    def took_iq(self, element: Element, their: Jid, ours: Jid) -> bool:
        """Take a request of Jingle; whether it is one."""
        jingle = element.find(f"{JINGLE} jingle")
        if jingle is None or element.get("type") != "set":
            return False
        action = jingle.get("action")
        session = self._sessions.get((their.bare, jingle.get("sid")))
        if session is not None and not (
            session.is_begun and session.their == their and session.ours.bare == ours.bare
        ):
            session = None
        if action == "session-initiate":
            self._took_initiate(element, jingle, their, ours)
        elif session is None:
            more = tag("unknown-session", {"xmlns": ERRORS})
            self._answer(element, error_element(404, more=more))
        elif action in ("session-accept", "session-terminate", "session-info", "transport-info"):
            self._answer(element)
            self._took_action(action, jingle, session)
        else:
            self._answer(element, error_element(501))
        return True

    def _took_initiate(self, element: Element, jingle: Element, their: Jid, ours: Jid) -> None:
        """Take a call of somebody there."""
        ours = ours if ours.resource else ours._replace(resource=RESOURCE)
        session = Session(jingle.get("sid"), their, ours, is_begun=True)
        if not 0 < len(session.sid) <= MAX_SID or session.key in self._sessions:
            self._answer(element, error_element(400))
        elif len(self._sessions) >= MAX_CALLS:
            self._answer(element, error_element(429))
        elif self._loses_to_ours(session):
            self._answer(element, error_element(409, more=tag("tie-break", {"xmlns": ERRORS})))
        else:
            self._answer(element)
            self._call_here(jingle, session)

    def _loses_to_ours(self, session: Session) -> bool:
        """Whether a call of ours to who calls counts; if his does, ours ends."""
        for each in list(self._sessions.values()):
            call = each.call
            if call is None or not call.is_outgoing or call.state is CallState.LIVE:
                continue
            if each.their.bare == session.their.bare and each.ours.bare == session.ours.bare:
                if each.sid <= session.sid:
                    return True
                del self._sessions[each.key]
                self.calls.refused(call, 409, "He is calling, too.")
        return False

    def _call_here(self, jingle: Element, session: Session) -> None:
        try:
            offer = from_jingle(jingle, "initiator")
        except BadMessage as error:
            self._fail(session, error)
            return
        session.names = [part.first("mid") for part in parts_of(offer.sdp)[1]]
        self._sessions[session.key] = session
        party = self._addresses.address(session.their)

        def found(hyperty: str) -> None:
            if self._sessions.get(session.key) is not session:
                return  # he has hung up meanwhile
            try:
                if not hyperty:
                    raise NotFound("Nobody is there.")
                session.call = call = self.calls.called(party, hyperty, offer, session)
            except NodeError as error:
                self._forget(session)
                self._terminate(session, _REASONS.get(error.code, "gone"), error.description)
                return
            for each in session.waiting:
                self.calls.trickled(call, each)
            session.waiting = []

        self._parties.find(party, session.ours.local, found, is_call=True)

    def _took_action(self, action: str, jingle: Element, session: Session) -> None:
        call = session.call
        try:
            if action == "session-terminate":
                self._took_end(jingle, session)
            elif action == "transport-info":
                self._took_candidates(candidates_in_info(jingle, session.names), session)
            elif call is None or not call.is_outgoing:
                return
            elif action == "session-accept":
                self.calls.accepted(call, from_jingle(jingle, "responder", call.offer.sdp))
            elif jingle.find(f"{RTP_INFO} ringing") is not None:
                self.calls.rings(call)
        except BadMessage as error:
            self._fail(session, error)

    def _took_candidates(self, candidates: list[Candidate], session: Session) -> None:
        for each in candidates:
            if session.call is not None:
                self.calls.trickled(session.call, each)
            elif len(session.waiting) < MAX_CANDIDATES:
                session.waiting.append(each)

    def _took_end(self, jingle: Element, session: Session) -> None:
        reason = jingle.find(f"{JINGLE} reason")
        said = {each.local_name: each.text for each in reason.children} if reason else {}
        name = next((each for each in said if each != "text"), "")
        self._forget(session)
        if (call := session.call) is not None:
            code = NORMAL if call.state is CallState.LIVE else _CODES.get(name, 480)
            self.calls.refused(call, code, said.get("text") or name or "The call was ended.")

    def _fail(self, session: Session, error: NodeError) -> None:
        """End a session for what was said in it."""
        self._here.refused(error.description)
        self._forget(session)
        self._terminate(session, "failed-transport", error.description)
        if session.call is not None:
            self.calls.refused(session.call, 488, error.description)

    def took_message(self, element: Element, their: Jid, ours: Jid) -> bool:
        """Take a message about a session to come, or its error; whether it is one."""
        found = next((each for each in element.children if each.name in _NAMED), None)
        is_error = element.get("type") == "error"
        sid = element.get("id") if is_error or found is None else found.get("id")
        session = self._sessions.get((their.bare, sid))
        if session is not None and (session.is_begun or session.ours.bare != ours.bare):
            session = None
        if is_error:
            if session is not None and session.call is not None:
                fault = error_in(element, their.bare)
                self._forget(session)
                self.calls.refused(session.call, fault.code, fault.description)
            return session is not None
        if found is None:
            return False
        if found.local_name == "propose":
            self._took_proposal(sid, their, ours)
        elif session is not None and session.call is not None:
            self._took_word(found.local_name, their, session, session.call)
        return True  # others are late, or for another client

    def _took_word(self, word: str, their: Jid, session: Session, call: Call) -> None:
        if word == "proceed" and their.resource:
            session.their = their
            try:
                self._initiate(call, session)
            except NodeError as error:
                self._forget(session)
                self.calls.refused(call, error.code, error.description)
        elif word == "ringing":
            self.calls.rings(call)
        elif word == "reject":
            self._forget(session)
            self.calls.refused(call, 403, "He has declined the call.")

    def _took_proposal(self, sid: str, their: Jid, ours: Jid) -> None:
        """Tell who wants to call whether to go on."""
        session = Session(sid, their, ours._replace(resource=RESOURCE))

        def found(hyperty: str) -> None:
            self._message(session, "proceed" if hyperty else "reject")

        if 0 < len(sid) <= MAX_SID:
            self._parties.find(self._addresses.address(their), ours.local, found, is_call=True)

    # --- to the network ---------------------------------------------------------------------------

    def _describe_ours(self, session: Session, sdp: str) -> None:
        parts = parts_of(sdp)[1]
        session.access = [(part.first("ice-ufrag"), part.first("ice-pwd")) for part in parts]

    def _ask(
        self,
        session: Session,
        action: str,
        head: dict[str, str],
        inside: list[str],
        said: Callable[[Element | None], None] | None = None,
    ) -> None:
        named = {"xmlns": JINGLE, "action": action, "sid": session.sid, **head}
        made = tag("jingle", named, *inside)
        self._gateway.ask(str(session.their), str(session.ours), made, said)

    def _terminate(self, session: Session, reason: str, text: str) -> None:
        words = f"<text>{text_of(text[:200])}</text>" if text else ""
        self._ask(session, "session-terminate", {}, [f"<reason><{reason}/>{words}</reason>"])

    def _message(self, session: Session, name: str, *inside: str) -> None:
        made = tag(name, {"xmlns": MESSAGES, "id": session.sid}, *inside)
        head = {"type": "chat", "id": session.sid, "from": str(session.ours),
                "to": str(session.their)}  # fmt: skip
        self._gateway.put("message", head, made, tag("store", {"xmlns": _HINTS}))

    def _answer(self, element: Element, error: str = "") -> None:
        head = {"type": "error" if error else "result", "id": element.get("id")}
        parties = {"from": element.get("to"), "to": element.get("from")}
        self._gateway.put("iq", {**head, **parties}, *([error] if error else []))

    def _forget(self, session: Session) -> None:
        self._sessions.pop(session.key, None)


_NAMED = {f"{MESSAGES} {name}" for name in _MESSAGES}


def is_about_a_call(element: Element) -> bool:
    """Whether a message is about a session to come."""
    return any(each.name in _NAMED for each in element.children)
