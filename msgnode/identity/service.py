"""Wires the parts of identity in a worker to sessions, the connector and the control messages.

Rules
- Issuers and revocations are read in the writer's thread and applied on the loop; if the database
  is out of reach they stay as they are.
- A change of a session's identity is passed to the index of who is logged in, the authenticator and
  the policies.
- A revocation takes effect at once: affected sessions are closed (4401) or become anonymous. A
  session that comes from another worker, or is taken over, is checked when it has come.
- If the mode requires an identity a session has IDENTIFY_TIMEOUT seconds to get one: by login, or
  in the identified mode by a message.
- With several workers tokens are bound in the database, and the index has sessions of others too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from django.conf import settings

from msgnode.bus.ports import Alarms, Listener, Proof
from msgnode.bus.table import RoutingTable
from msgnode.bus.writing import Call, Writer
from msgnode.connectors.identity import (
    FindElsewhere,
    IdentityConnector,
    Invitations,
    Logins,
    invitations_are_off,
)
from msgnode.core.addresses import home_domain
from msgnode.core.faults import FAULTS
from msgnode.core.identity import OWN_ISSUERS, Identity, Speaker
from msgnode.identity import admission_policy, issuer_store
from msgnode.identity import revocation_list as revoking
from msgnode.identity.admission_policy import Mode
from msgnode.identity.async_verifier import AsyncVerifier
from msgnode.identity.authenticator import AuthenticationRules, MessageAuthenticator
from msgnode.identity.bindings import MAX_PER_RUNTIME, Bindings, BindingStore
from msgnode.identity.credentials import Rejected
from msgnode.identity.http import Fetcher
from msgnode.identity.identify_timeout import IdentifyTimeout
from msgnode.identity.issuers import Issuer, IssuerBook
from msgnode.identity.jwks import JwksCache
from msgnode.identity.ports import (
    ISSUERS_CHANGED,
    NO_GUESTS,
    REVOKED,
    AssertionRequest,
    Guests,
    Provider,
)
from msgnode.identity.presence import LoggedInIndex
from msgnode.identity.revocation_list import Revocations
from msgnode.identity.verifier import Verifier
from msgnode.sessions.connection import Connection
from msgnode.sessions.manager import SessionManager
from msgnode.sessions.rules import CloseCode
from msgnode.sessions.session import LiveSession
from msgnode.storage.control import Handler

log = logging.getLogger(__name__)
ISSUER_SECONDS = 3.0
"""For an answer of an issuer: the messages of a session wait for it, and 14 s is what they have."""
OUT_OF_REACH = "issuer-out-of-reach"
NO_USABLE_KEY = "issuer-without-usable-key"


class IdentitySources(NamedTuple):
    """The rooms beside this one that know identities.

    Attributes:
        provider: the domain's own provider, if there is one.
        guests: decides which sessions may speak without an identity.
        invitations: answers messages about invitations.
        find_elsewhere: finds who is logged in at other workers, if there are some.
    """

    provider: Provider | None = None
    guests: Guests = NO_GUESTS
    invitations: Invitations = invitations_are_off
    find_elsewhere: FindElsewhere | None = None


def _rules(domain: str) -> AuthenticationRules:
    options: dict[str, Any] = settings.IDENTITY
    home = home_domain(domain)
    return AuthenticationRules(
        admission_policy.read(settings.ADMISSION, settings.ADMISSION_DOMAINS, home),
        frozenset({f"domain://idm.{domain}", f"domain-idp://{domain}"}),
        passes_unknown=options["PASSES_UNKNOWN"],
    )


def _fetcher() -> Fetcher:
    options: dict[str, Any] = settings.IDENTITY
    return Fetcher(ISSUER_SECONDS, options["HOSTS"], options["LOOPBACK_HTTP"])


def _bindings(table: RoutingTable, writer: Writer) -> Bindings:
    """The bindings of tokens; with other workers, in the database."""
    return Bindings(
        table.runtimes.__contains__,
        shared=BindingStore(writer, MAX_PER_RUNTIME) if settings.REDIS_URL else None,
    )


class IdentityService:
    """One instance per worker.

    Args:
        table: the routing table.
        sessions: the sessions of this worker.
        writer: the writer of this worker.
        connections: the connections of this worker, with and without a session.
        decide_again: has the policies decide again on what a session listens to.
        alarms: the node's alarms.
        timeout: the time limit for sessions to identify themselves.
        sources: the rooms beside this one.
    """

    def __init__(
        self,
        table: RoutingTable,
        sessions: SessionManager,
        writer: Writer,
        connections: Collection[Connection],
        decide_again: Callable[[Listener], None],
        alarms: Alarms,
        timeout: IdentifyTimeout,
        sources: IdentitySources,
    ) -> None:
        provider = sources.provider
        self._domain: str = settings.DOMAIN
        self._sessions = sessions
        self._writer = writer
        self._connections = connections
        self._decide_again = decide_again
        self._alarms = alarms
        self._provider = provider
        self._fetcher = _fetcher()
        self._faulty: dict[str, set[str]] = {OUT_OF_REACH: set(), NO_USABLE_KEY: set()}
        self.keys = JwksCache(self._load_keys, report=self._report)
        self.logged_in = LoggedInIndex()
        self._deadlines = timeout.deadlines
        self.verifier = Verifier(self.keys, self._fetcher, provider)
        self.async_verifier = AsyncVerifier(self.verifier, provider)
        self._table = table
        self.authenticator = MessageAuthenticator(
            self.verifier,
            _rules(self._domain),
            _bindings(table, writer),
            log_in=self._log_in,
            identified=timeout.said_who,
            guests=sources.guests,
        )
        logins = Logins(self._log_in, self.authenticator.check_login, self.authenticator.spend)
        self.connector = IdentityConnector(
            self._domain,
            self.async_verifier,
            AssertionRequest,
            logins,
            self.logged_in.find,
            sources.invitations,
            sources.find_elsewhere,
        )

    def load(self) -> None:
        """Read issuers and revocations. Blocks: for use at the start."""
        if self._provider is not None:
            issuer_store.enter_embedded(self._provider.issuer, self._domain)
        book, self.verifier.revocations = issuer_store.load()
        self.verifier.use(book)

    def restore(self) -> None:
        """Note the subjects of restored sessions; end those revoked or not believed by now."""
        for session in self._sessions.sessions.values():
            identity = session.speaker.identity
            if identity is not None and (
                self._is_revoked(identity, session.proof) or not self._is_believed(identity)
            ):
                session.speaker = session.speaker.without_identity()
            self.logged_in.enter(session)

    async def stop(self) -> None:
        """Close the connections to issuers."""
        await self._fetcher.close()

    def control_handlers(self) -> dict[str, Handler]:
        """The handlers for changes of issuers and for revocations."""
        return {ISSUERS_CHANGED: self._issuers_changed, REVOKED: self._revoked}

    # --- what happens to sessions -----------------------------------------------------------------

    def session_identified(self, session: LiveSession) -> None:
        """Note a session that is new here, or whose subject has changed."""
        self.logged_in.enter(session)
        self._decide_again(session)
        mode = self.authenticator.mode_of(session)
        is_due = session.speaker.identity is None and not session.speaker.peer
        if not mode or not is_due:
            self._deadlines.leave(session.id)
        elif mode is Mode.STRICT or not session.has_said_who:
            self._deadlines.enter(session.id)

    def session_arrived(self, session: LiveSession) -> None:
        """A session has come: its identity may have ended while it was not with this worker."""
        identity = session.speaker.identity
        if identity is None:
            return
        if self._is_revoked(identity, session.proof):
            who = identity.issuer, identity.subject
            if self.verifier.revocations.closes(*who, session.proof):
                self._sessions.end(session, CloseCode.NOT_IDENTIFIED, "identity revoked")
            else:
                self._sessions.identify(session, None)
        elif not self._is_believed(identity):
            self._sessions.identify(session, None)

    def session_closed(self, session: Listener, reason: str) -> None:
        """A SessionEnd."""
        self.logged_in.leave(session.id)
        self._deadlines.leave(session.id)
        self.authenticator.session_closed(session, reason)

    def session_handed_off(self, session_id: str) -> None:
        """Forget a session that has moved to another worker."""
        self._deadlines.leave(session_id)
        self.authenticator.session_handed_off(session_id)

    def remote_entered(self, session: Listener) -> None:
        """Note a session of another worker that is new or whose subject has changed."""
        self.logged_in.enter(session)

    def session_went(self, session: Listener) -> None:
        """A session of this worker is another one's from now on."""
        self.logged_in.enter(session)
        self.authenticator.runtime_went(session.runtime_url)

    def remote_left(self, session: Listener) -> None:
        """Forget a session of another worker that has ended."""
        self.session_closed(session, "")

    def authorize_runtime(
        self, runtime_url: str, speaker: Speaker, proof: str, is_new: bool
    ) -> None:
        """Check that this proof may open a new session of a runtime or resume one.

        Raises: Rejected: it was revoked after it was verified; or peers have seen the token, so it
            proves nothing any more, except for its own runtime while that has no connection.
        """
        if speaker.identity is None:
            return
        if self._is_revoked(speaker.identity, proof):
            raise Rejected("The identity has been revoked.")
        if not proof:
            return
        holder = self.authenticator.holder(proof, runtime_url)
        others = self._table.runtimes.get(holder, ()) if is_new else ()
        if holder and (holder != runtime_url or any(each.is_connected for each in others)):
            raise Rejected("The token is in use by another runtime, or by another of this one's.")

    def _log_in(self, session: Listener, proof: Proof | None) -> asyncio.Future[Any] | None:
        live = self._sessions.sessions.get(session.id)
        if live is None:
            return None
        if proof is None:
            return self._sessions.identify(live, None)
        self.authenticator.check_login(proof, live)
        return self._sessions.identify(live, proof.identity, proof.digest)

    # --- control messages -------------------------------------------------------------------------

    def _issuers_changed(self, payload: dict[str, Any]) -> asyncio.Future[Any]:
        loaded: list[tuple[IssuerBook, Revocations]] = []

        def load() -> None:
            loaded[:] = [issuer_store.read()]

        def use(done: asyncio.Future[Any]) -> None:
            if done.cancelled() or done.exception() is not None:
                return  # those before stay in force until it is tried again
            before = self.verifier.book.all
            book, self.verifier.revocations = loaded[0]
            self.verifier.use(book)
            self.authenticator.forget()
            self._end_disbelieved()
            same = {each.url for each in book.all if each in before}
            for url in set().union(*self._faulty.values()) - same:
                self._say(url, "", "")  # it was taken out, or is fetched anew

        loading = self._writer.submit(Call(load))
        loading.add_done_callback(use)
        return loading

    def _end_disbelieved(self) -> None:
        """Remove identities whose issuer was removed, or names its users in another way now."""
        for session in tuple(self._sessions.sessions.values()):
            identity = session.speaker.identity
            if identity is not None and not self._is_believed(identity):
                with FAULTS.kept_to("session"):
                    self._sessions.identify(session, None)

    def _is_believed(self, identity: Identity) -> bool:
        """Whether the issuer of an identity is one of ours, still, and still names it so."""
        if identity.issuer in OWN_ISSUERS:
            return True
        issuer = self.verifier.book.named(identity.issuer)
        return issuer is not None and issuer.names_still(identity)

    def _revoked(self, payload: dict[str, Any]) -> None:
        revoked = revoking.from_payload(payload)
        self.verifier.revocations.add(revoked)
        self.verifier.forget()
        self.authenticator.forget()

        def is_met(identity: Identity | None, proof: str) -> bool:
            if identity is None:
                return False
            if revoked.token:
                return proof == revoked.token
            return (identity.issuer, identity.subject) == (revoked.issuer, revoked.subject)

        for session in tuple(self._sessions.sessions.values()):
            if not is_met(session.speaker.identity, session.proof):
                continue
            with FAULTS.kept_to("session"):
                if revoked.closes:
                    self._sessions.end(session, CloseCode.NOT_IDENTIFIED, "identity revoked")
                else:
                    self._sessions.identify(session, None)
        for connection in tuple(self._connections):
            if connection.session is None and is_met(connection.speaker.identity, connection.proof):
                with FAULTS.kept_to("connection"):
                    connection.end(CloseCode.NOT_IDENTIFIED, "identity revoked")

    def _is_revoked(self, identity: Identity, proof: str) -> bool:
        """Whether a bound identity was revoked while its session was not at this worker.

        If it is unknown when its token was issued, it was; a new login is the remedy.
        """
        known = self.verifier.revocations
        return known.covers(identity.issuer, identity.subject, identity.issued, proof)

    # --- keys -------------------------------------------------------------------------------------

    def _report(self, issuer: Issuer, fault: str, unusable: str) -> None:
        """Raise alarms while an issuer's keys are out of reach, or none can be used.

        Those of an issuer that was taken out meanwhile are cleared.
        """
        is_ours = issuer in self.verifier.book.all
        self._say(issuer.url, fault if is_ours else "", unusable if is_ours else "")

    def _say(self, url: str, fault: str, unusable: str) -> None:
        if fault:
            self._faulty[OUT_OF_REACH].add(url)
            self._alarms.raise_alarm(
                OUT_OF_REACH, url, f"Its keys cannot be fetched: {fault}"[:500]
            )
        if unusable:
            self._faulty[NO_USABLE_KEY].add(url)
            self._alarms.raise_alarm(
                NO_USABLE_KEY, url, f"None of its keys can be used: {unusable}"[:500]
            )
        for kind, text in ((OUT_OF_REACH, fault), (NO_USABLE_KEY, unusable)):
            if not text:
                self._faulty[kind].discard(url)
                self._alarms.clear_alarm(kind, url)  # perhaps raised by another process
        down, without = map(len, self._faulty.values())
        words = [f"{down} issuers out of reach"] if down else []
        words += [f"{without} issuers without a usable key"] if without else []
        self.connector.info.state = ", ".join(words) or "live"

    async def _load_keys(self, issuer: Issuer) -> dict[str, Any]:
        if not issuer.is_embedded:
            return await self._fetcher.jwks(issuer.jwks_url, issuer.url)
        if self._provider is None:
            raise LookupError("this node has no provider of its own")
        async with asyncio.timeout(ISSUER_SECONDS):
            self.verifier.client_ids = await self._provider.client_ids()
            return await self._provider.keys()
