"""Calls with users of a SIP network: INVITE and its dialogs (RFC 3261, sections 12 to 15).

    create with an offer       INVITE; 100, 180 and 183 are 100
    200 with the answer        200, and ACK
    a refusal, delete          a final response; CANCEL before the answer, BYE after
    connectionDescription      INVITE in the dialog, both ways: hold, resume, other media

Rules
- All candidates are in a description: those that follow it within two seconds are waited for.
- Of several phones that answer the first has the call; the others are acknowledged, and hung up.
- Of two sides that offer at once each says 491, and tries again after a random time.
- After the flow was lost each phone is invited again, as it was, to learn where this node is now.
- A call in which nothing was said for half an hour is asked for.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Protocol

from msgnode.core.errors import BadMessage, Conflict, NodeError

from .calls import MAX_CALLS, Call, Calls, CallState
from .descriptions import Candidate, Description, sdp_fault
from .network import Here, shown
from .parties import Parties
from .sip_addresses import SipAddresses
from .sip_media import Media
from .sip_messages import MAX_ROUTES, METHODS, SDP, TEXT, Incoming, party_in
from .sip_transactions import LOST, TIMEOUT_SECONDS, Outgoing, Served, Transactions

GATHER_SECONDS, ANSWER_SECONDS = 2.0, 10.0
QUIET_SECONDS = 1_800.0
RESTORED_NUMBER = 10_000
"""Of the first request in a dialog of the worker before: higher than any of its own."""
ALLOW = ("Allow", ", ".join(METHODS))
CODES = {
    400: 400, 403: 403, 404: 404, 405: 501, 408: 408, 410: 410, 413: 413, 415: 501, 477: 503,
    480: 404, 481: 404, 484: 404, 486: 486, 487: 487, 488: 488, 501: 501, 503: 503, 504: 504,
    513: 413, 600: 486, 603: 403, 604: 404, 606: 488,
}  # fmt: skip
"""What a final response is here; others are 502."""
_ANSWERS = {400: 488, 403: 603, 406: 488, 486: 486, 488: 488, 603: 603}
"""What is said there; others are 480."""


@dataclass(eq=False, slots=True)
class Dialog:
    """What SIP has about a call.

    Attributes:
        call_id, ours, theirs: what its requests have; `theirs` has a tag once somebody answered.
        target, routes: where its requests go.
        account: whose password they have.
        name: ours, in its contact.
        invite: the request of ours that is not answered yet.
        served: theirs that is not answered yet.
        sdp: what we have described last.
        timers: what is to be done, and when, by a name.
    """

    call_id: str
    ours: str
    theirs: str
    target: str
    account: str
    name: str
    routes: list[str] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    heard: int = -1
    call: Call | None = None
    invite: Outgoing | None = None
    served: Served | None = None
    sdp: str = ""
    is_begun: bool = False  # we have called
    is_live: bool = False
    is_over: bool = False
    has_sign: bool = False  # a provisional response
    tells: bool = False  # whether the runtime waits for the answer to our offer
    gathered: list[Candidate] = field(default_factory=list)
    timers: dict[str, tuple[float, Callable[[], None]]] = field(default_factory=dict)

    @property
    def our_tag(self) -> str:
        """Ours: what it is found by."""
        return party_in(self.ours)[1]

    @property
    def their_tag(self) -> str:
        """Theirs, "" before somebody has answered."""
        return party_in(self.theirs)[1]


def _routes_in(answer: Incoming) -> list[str]:
    """The routes of who has called, as the answer to that has them."""
    return answer.all("record-route")[:MAX_ROUTES][::-1]


class Gateway(Protocol):
    """What calls use of the network."""

    addresses: SipAddresses

    def request(self, method: str, target: str, name: str) -> Outgoing:
        """A request outside a call."""
        ...

    def contact_of(self, name: str) -> str:
        """Where a name is on this flow."""
        ...


class SipCalls:
    """The calls of one network. Implements Signalling.

    Args:
        here: this node.
        gateway: the network.
        transactions: of its flow.
        parties: finds who takes a call.
        media: changes descriptions, or passes them as they are.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        here: Here,
        gateway: Gateway,
        transactions: Transactions,
        parties: Parties,
        media: Media,
        clock: Callable[[], float],
    ) -> None:
        self.calls = Calls(gateway.addresses.domain, here, self, clock)
        self._here = here
        self._gateway = gateway
        self._transactions = transactions
        self._parties = parties
        self._media = media
        self._clock = clock
        self._dialogs: dict[str, Dialog] = {}  # by our tag
        self._is_connected = False

    # --- Signalling -------------------------------------------------------------------------------

    def invite(self, call: Call) -> None:
        """Call a user there."""
        target = self._gateway.addresses.uri_of(call.party)
        name = self._parties.name_of(call.here)
        request = self._gateway.request("INVITE", target, name)
        said = dict(request.headers)
        dialog = Dialog(said["Call-ID"], said["From"], said["To"], target, request.account, name)
        dialog.numbers, dialog.call, dialog.is_begun = request.numbers, call, True
        call.network = self._dialogs[dialog.our_tag] = dialog
        self._parties.wrote(call.party, name, call.here)
        self._gather(dialog, call.offer, partial(self._offer, dialog))

    def ring(self, call: Call) -> None:
        """Say that it rings here."""
        dialog: Dialog = call.network
        if dialog.served is not None:
            headers = [("Contact", self._contact(dialog))]
            self._transactions.answer(dialog.served, 180, headers=headers)

    def accept(self, call: Call, answer: Description) -> None:
        """Answer the party's call."""
        dialog: Dialog = call.network
        dialog.is_live = True
        self._gather(dialog, answer, partial(self._answer, dialog))

    def trickle(self, call: Call, candidate: Candidate) -> None:
        """Take a candidate into the description that waits for it; a later one is not passed on."""
        dialog: Dialog = call.network
        if "gather" in dialog.timers:
            dialog.gathered.append(candidate)

    def describe(self, call: Call, description: Description) -> None:
        """Offer something else in a call, or answer what was offered."""
        dialog: Dialog = call.network
        if description.type == "answer":
            if dialog.served is None:
                raise Conflict("Nothing was offered that is not answered.")
            self._gather(dialog, description, partial(self._answer, dialog))
        elif dialog.invite is not None or dialog.served is not None or "gather" in dialog.timers:
            raise Conflict("An offer in this call is not answered yet.")
        else:
            dialog.tells = True
            self._gather(dialog, description, partial(self._offer, dialog))

    def hang_up(self, call: Call, code: int, text: str) -> None:
        """End a call: refuse, withdraw or leave it."""
        dialog: Dialog = call.network
        if dialog.is_begun and not dialog.is_live:
            dialog.is_over = True
            if dialog.invite is None:
                self._forget(dialog)
            elif dialog.has_sign:
                self._transactions.cancel(dialog.invite)
            return
        is_new = not dialog.is_begun and not dialog.sdp and dialog.served is not None
        if dialog.served is not None:
            self._transactions.answer(dialog.served, _ANSWERS.get(code, 480), text)
            dialog.served = None
        if is_new:
            self._forget(dialog)
        else:
            self._leave(dialog)

    def kept(self, call: Call) -> str:
        """The dialog of a call as a text."""
        dialog: Dialog = call.network
        return "\n".join((dialog.call_id, dialog.ours, dialog.theirs, dialog.target,
                          dialog.account, dialog.name, *dialog.routes))  # fmt: skip

    def restored(self, call: Call, text: str) -> None:
        """Take up the dialog of a call of the worker before."""
        call_id, ours, theirs, target, account, name, *routes = text.split("\n")
        dialog = Dialog(call_id, ours, theirs, target, account, name, routes)
        dialog.numbers, dialog.call, dialog.is_live = count(RESTORED_NUMBER), call, True
        call.network = self._dialogs[dialog.our_tag] = dialog

    # --- descriptions -----------------------------------------------------------------------------

    def _gather(
        self, dialog: Dialog, description: Description, then: Callable[[str], None]
    ) -> None:
        """Wait for the candidates of a description, if it has none; then go on with its text."""
        has_some = description.candidates or "\na=candidate" in description.sdp
        if has_some or "\na=ice-ufrag" not in description.sdp:
            then(description.whole_sdp)
            return

        def gathered() -> None:
            then(description._replace(candidates=tuple(dialog.gathered)).whole_sdp)

        dialog.gathered = []
        self._after(dialog, "gather", GATHER_SECONDS, gathered)

    def _pass(
        self,
        dialog: Dialog,
        command: str,
        sdp: str,
        is_ours: bool,
        then: Callable[[str], None],
        failed: Callable[[Dialog, NodeError], None] | None = None,
    ) -> None:
        """Have a description passed through the media, and go on with it if there is a call yet."""
        served = dialog.served

        def changed(result: str | NodeError) -> None:
            if dialog.is_over or (served is not None and dialog.served is not served):
                return
            if isinstance(result, NodeError):
                (failed or self._fail)(dialog, result)
            else:
                then(result)

        self._media.change(command, dialog.our_tag, sdp, is_ours, changed)

    def _offer(self, dialog: Dialog, sdp: str) -> None:
        """Offer a description there."""

        def changed(result: str) -> None:
            dialog.sdp = result
            self._invite(dialog)

        self._pass(dialog, "offer", sdp, True, changed)

    def _invite(self, dialog: Dialog) -> None:
        """Send an INVITE with what we describe."""
        request = self._request(dialog, "INVITE")
        request.body, request.type_ = dialog.sdp.encode(errors="replace"), SDP
        request.headers += [("Contact", self._contact(dialog)), ALLOW]
        dialog.invite = request
        said = partial(self._invited_again if dialog.is_live else self._invited, dialog, request)
        self._transactions.send(request, said)

    def _answer(self, dialog: Dialog, sdp: str) -> None:
        """Answer with a description."""

        def changed(result: str) -> None:
            served, dialog.served = dialog.served, None
            if served is None or served.code >= 200:
                return
            dialog.sdp = result
            dialog.timers.pop("answer", None)
            headers = [("Contact", self._contact(dialog)), ALLOW]
            body = result.encode(errors="replace")
            self._transactions.answer(served, 200, headers=headers, body=body, type_=SDP)
            again = partial(self._say_again, dialog, served, 0.5, self._clock() + TIMEOUT_SECONDS)
            self._after(dialog, "again", 0.5, again)

        self._pass(dialog, "answer", sdp, True, changed)

    def _described(self, dialog: Dialog, message: Incoming, then: Callable[[str], None]) -> None:
        """Have what was answered there passed through the media, and go on with it."""
        text = message.body.decode(errors="replace")
        if message.media_type != SDP or sdp_fault(text):
            self._fail(dialog, BadMessage("The answer has no description that can be used."))
        else:
            self._pass(dialog, "answer", text, False, then)

    def _fail(self, dialog: Dialog, error: NodeError) -> None:
        """End a call, which cannot go on, for both sides."""
        self._here.refused(error.description)
        if (call := dialog.call) is not None and call.state is not CallState.OVER:
            self.hang_up(call, error.code, error.description)
            self.calls.refused(call, error.code, error.description)
        else:
            self._forget(dialog)

    # --- calls of ours ----------------------------------------------------------------------------

    def _invited(
        self, dialog: Dialog, request: Outgoing, code: int, answer: Incoming | None
    ) -> None:
        """Take what is said of an INVITE that begins a call."""
        call = dialog.call
        if call is None:
            return
        if 100 <= code < 200:
            is_first, dialog.has_sign = not dialog.has_sign, True
            if dialog.is_over and is_first:
                self._transactions.cancel(request)
            elif not dialog.is_over:
                self.calls.rings(call, is_ringing=code > 100)
        elif 200 <= code < 300 and answer is not None:
            self._taken(dialog, request, answer)
        else:
            dialog.invite = None
            self._forget(dialog)
            said = shown(answer.reason) if answer is not None else ""
            text = f"{call.party[:200]}: {code} {said}" if code else "The proxy was lost."
            self.calls.refused(call, 503 if code == LOST else CODES.get(code, 502), text)

    def _taken(self, dialog: Dialog, request: Outgoing, answer: Incoming) -> None:
        """Take a 2xx of a call that began here: the first, the same again, or another phone's."""
        if dialog.their_tag and answer.to_tag != dialog.their_tag:
            other = replace(
                dialog, theirs=answer.first("to"), target=answer.contact or dialog.target,
                routes=_routes_in(answer), numbers=count(request.number + 1),
            )  # fmt: skip
            self._acknowledge(other, request)
            self._transactions.send(self._request(other, "BYE"), lambda *_: None)
            return
        is_first = not dialog.their_tag
        if is_first:
            dialog.theirs, dialog.invite = answer.first("to"), None
            dialog.routes = _routes_in(answer)
            self._learn(dialog, answer)
        self._acknowledge(dialog, request)
        call = dialog.call
        if not is_first or call is None:
            return
        dialog.is_live = True
        if dialog.is_over:
            self._leave(dialog)
            return

        def described(sdp: str) -> None:
            self.calls.accepted(call, Description("answer", sdp))

        self._described(dialog, answer, described)

    def _acknowledge(self, dialog: Dialog, request: Outgoing) -> None:
        ack = self._request(dialog, "ACK")
        self._transactions.acknowledge(ack, request.number)

    def _learn(self, dialog: Dialog, message: Incoming) -> None:
        """Learn from a message where the requests of a dialog go."""
        self._after(dialog, "ask", QUIET_SECONDS, partial(self._ask, dialog))
        dialog.target = message.contact or dialog.target

    def _request(self, dialog: Dialog, method: str) -> Outgoing:
        """A request in a dialog."""
        headers = [("From", dialog.ours), ("To", dialog.theirs), ("Call-ID", dialog.call_id),
                   *(("Route", each) for each in dialog.routes)]  # fmt: skip
        return Outgoing(method, dialog.target, headers, account=dialog.account,
                        numbers=dialog.numbers)  # fmt: skip

    def _contact(self, dialog: Dialog) -> str:
        return f"<{self._gateway.contact_of(dialog.name)}>"

    def _leave(self, dialog: Dialog) -> None:
        """End a dialog: now, or with the next flow."""
        dialog.is_over = True
        dialog.timers.clear()
        if self._is_connected:
            self._transactions.send(self._request(dialog, "BYE"), lambda *_: None)
            self._forget(dialog)

    def _forget(self, dialog: Dialog) -> None:
        dialog.is_over = True
        dialog.timers.clear()
        if self._dialogs.pop(dialog.our_tag, None) is not None:
            self._media.end(dialog.our_tag)

    # --- calls of theirs --------------------------------------------------------------------------

    def took_invite(self, served: Served, their: str, name: str) -> None:
        """Take a call of somebody there to a name of ours."""
        request = served.request
        if not self._has_offer(served):
            return
        if len(self._dialogs) >= 2 * MAX_CALLS:
            self._transactions.answer(served, 480, "There are too many calls")
            return
        self._transactions.answer(served, 100)
        ours = f"{request.first('to')};tag={served.tag}"
        account = self._gateway.request("INVITE", request.uri, name).account
        dialog = Dialog(request.call_id, ours, request.first("from"), request.uri, account, name)
        dialog.routes = request.all("record-route")[:MAX_ROUTES]
        dialog.heard, dialog.served = request.number, served
        self._learn(dialog, request)
        self._dialogs[dialog.our_tag] = dialog
        self._parties.find(their, name, partial(self._found, dialog, their), is_call=True)

    def _has_offer(self, served: Served) -> bool:
        """Refuse an INVITE without an offer that can be used; whether it has one."""
        request, more = served.request, [("Accept", SDP)]
        if request.body and request.media_type != SDP:
            self._transactions.answer(served, 415, headers=more)
        elif not request.contact:
            self._transactions.answer(served, 400, "There is no Contact")
        elif not request.body or sdp_fault(request.body.decode(errors="replace")):
            self._transactions.answer(served, 488)
        else:
            return True
        return False

    def _found(self, dialog: Dialog, their: str, hyperty: str) -> None:
        """Call the hyperty that was found."""
        if dialog.is_over or dialog.served is None:
            return  # he has hung up meanwhile
        text = dialog.served.request.body.decode(errors="replace")

        def changed(result: str) -> None:
            try:
                offer = Description("offer", result)
                dialog.call = self.calls.called(their, hyperty, offer, dialog)
            except NodeError as error:
                self._refuse(dialog, error)

        if hyperty:
            self._pass(dialog, "offer", text, False, changed, self._refuse)
        else:
            self._refuse(dialog, self._parties.nobody(dialog.name))

    def _refuse(self, dialog: Dialog, error: NodeError) -> None:
        if dialog.served is not None:
            code = _ANSWERS.get(error.code, 480)
            self._transactions.answer(dialog.served, code, error.description)
        self._forget(dialog)

    def took_ack(self, message: Incoming) -> None:
        """Take the ACK of an answer of ours."""
        if (dialog := self._dialog_of(message)) is not None:
            dialog.timers.pop("again", None)

    def took_cancel(self, served: Served) -> None:
        """Take that a call was withdrawn before it was answered."""
        tag = served.request.to_tag or served.tag
        if (dialog := self._dialogs.get(tag)) is not None and dialog.served is served:
            dialog.served = None
            dialog.timers.pop("answer", None)
            if dialog.is_live:
                return  # an offer in the call was withdrawn
            self._forget(dialog)
            if dialog.call is not None:
                self.calls.hung_up(dialog.call)

    def _dialog_of(self, message: Incoming) -> Dialog | None:
        """The dialog that a request is in."""
        dialog = self._dialogs.get(message.to_tag)
        is_its = dialog is not None and dialog.call_id == message.call_id
        return dialog if is_its and dialog and dialog.their_tag == message.from_tag else None

    def took(self, served: Served) -> None:
        """Take a request in a dialog."""
        request, dialog = served.request, self._dialog_of(served.request)
        answer = self._transactions.answer
        if dialog is None or dialog.call is None:
            answer(served, 481)
        elif request.number <= dialog.heard:
            answer(served, 500, "The number is not higher than the last one")
        elif request.method == "BYE":
            dialog.heard = request.number
            answer(served, 200)
            if dialog.served is not None:
                answer(dialog.served, 487)
            dialog.invite = dialog.served = None
            self._forget(dialog)
            self.calls.hung_up(dialog.call)
        elif request.method == "OPTIONS":
            answer(served, 200, headers=[ALLOW, ("Accept", f"{SDP}, {TEXT}")])
        elif request.method != "INVITE":
            answer(served, 405, headers=[ALLOW])
        elif dialog.invite is not None or dialog.served is not None or not dialog.is_live:
            answer(served, 491)
        elif self._has_offer(served):
            dialog.heard = request.number
            self._offered(dialog, served, dialog.call)

    def _offered(self, dialog: Dialog, served: Served, call: Call) -> None:
        """Take an offer in a call."""
        self._transactions.answer(served, 100)
        self._learn(dialog, served.request)
        dialog.served = served
        self._after(dialog, "answer", ANSWER_SECONDS, partial(self._refuse_offer, dialog))
        text = served.request.body.decode(errors="replace")
        told = partial(self.calls.described, call)
        self._pass(dialog, "offer", text, False, lambda sdp: told(Description("offer", sdp)),
                   self._refuse_offer)  # fmt: skip

    def _refuse_offer(self, dialog: Dialog, _: NodeError | None = None) -> None:
        """Refuse an offer in a call, which goes on as it was."""
        served, dialog.served = dialog.served, None
        dialog.timers.pop("answer", None)
        if served is not None:
            self._transactions.answer(served, 488)

    def _invited_again(
        self, dialog: Dialog, request: Outgoing, code: int, answer: Incoming | None
    ) -> None:
        """Take what is said of an offer of ours in a call."""
        call = dialog.call
        if 100 <= code < 200 or call is None:
            return
        is_first, dialog.invite = dialog.invite is request, None
        if 200 <= code < 300 and answer is not None:
            self._learn(dialog, answer)
            self._acknowledge(dialog, request)
            if not is_first or dialog.is_over or not dialog.tells:
                return
            dialog.tells = False
            told = partial(self.calls.described, call)
            self._described(dialog, answer, lambda sdp: told(Description("answer", sdp)))
        elif code == 491:
            least = 2.1 if dialog.is_begun else 0.0
            pause = random.uniform(least, least + 2.0)  # noqa: S311
            self._after(dialog, "retry", pause, partial(self._retry, dialog))
        elif code in (408, 481):
            self._asked(dialog, code, answer)
        elif code != LOST:
            dialog.tells = False
            self._here.refused(f"an offer in a call was refused there ({code})")

    # --- in time ----------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether `tick` has to look at calls."""
        return bool(self._dialogs or len(self.calls))

    def lost(self) -> None:
        """End what was beginning when the flow was lost; calls that are live stay."""
        self._is_connected = False
        for dialog in list(self._dialogs.values()):
            if not dialog.is_live and not dialog.is_begun:
                dialog.served = None
                self._forget(dialog)
                if dialog.call is not None:
                    self.calls.hung_up(dialog.call, "The proxy was lost.")
            elif dialog.is_live:
                dialog.invite = dialog.served = None
                for name in ("again", "answer"):
                    dialog.timers.pop(name, None)

    def begin(self) -> None:
        """Tell each phone where this node is now, or that its call has ended meanwhile."""
        self._is_connected = True
        self.calls.end_lost()
        for dialog in list(self._dialogs.values()):
            if dialog.is_over and dialog.is_live:
                self._leave(dialog)
            elif dialog.is_live and dialog.sdp and dialog.invite is None:
                self._invite(dialog)

    def tick(self) -> None:
        """Look at what has a time limit."""
        now = self._clock()
        self.calls.tick()
        for dialog in list(self._dialogs.values()):
            for name, timer in list(dialog.timers.items()):
                if timer[0] <= now and dialog.timers.get(name) is timer:
                    del dialog.timers[name]
                    timer[1]()

    def _after(self, dialog: Dialog, name: str, seconds: float, action: Callable[[], None]) -> None:
        """Do something for a dialog after some seconds, in place of what had this name."""
        dialog.timers[name] = (self._clock() + seconds, action)

    def _retry(self, dialog: Dialog) -> None:
        """Make an offer again that met one of theirs."""
        if dialog.invite is None and dialog.served is None:
            self._invite(dialog)

    def _say_again(self, dialog: Dialog, ok: Served, pause: float, until: float) -> None:
        """Answer again what was not acknowledged, or end the call."""
        if self._clock() < until:
            pause = min(4.0, pause * 2)
            again = partial(self._say_again, dialog, ok, pause, until)
            self._after(dialog, "again", pause, again)
            self._transactions.again(ok)
        else:
            self._leave(dialog)
            if dialog.call is not None:
                self.calls.hung_up(dialog.call, "The answer was not acknowledged.")

    def _ask(self, dialog: Dialog) -> None:
        """Ask whether a call is there still in which nothing was said for long."""
        if dialog.is_live:
            self._after(dialog, "ask", QUIET_SECONDS, partial(self._ask, dialog))
            request = self._request(dialog, "OPTIONS")
            self._transactions.send(request, partial(self._asked, dialog))

    def _asked(self, dialog: Dialog, code: int, _: Incoming | None) -> None:
        if code in (408, 481) and dialog.call is not None:
            self._forget(dialog)
            self.calls.hung_up(dialog.call, "The other side knows nothing of the call any more.")
