"""Authenticates messages: the bus's Authenticator.

Every message passes here, so a known identity costs only a look-up.

speaker_of(message, session)
  1 an expired identity of the session is removed from it
  2 no identity in the message: the session's speaker, if the mode allows that
  3 an identity as in one of the session's last messages: the same Speaker
  4 else it is verified (verifier.py), and must be of the session's subject if it has one

Rules
- `identity`, `idToken` and `accessToken` of the body count, found by decoding.
- An access token identifies a message only if nothing else does, and then logs the session in; one
  that is not the node's passes unchanged and unread. It binds where others than the node see it.
- A token in a message binds (bindings.py): while the runtime that used it first lives, at any
  worker, no other runtime may use it, except one logged in as the same subject. So a peer that was
  sent an assertion can neither speak with it nor open a session. A runtime's key (`nonce`) for a
  subject is bound in the same way.
- An identity of an unknown issuer is refused, or passes as not asserted if the settings allow that
  and the mode requires none. An invalid identity is always refused.
- The session of a peer carries many identities, and never logs in: `strict` requires of it no more
  than `identified`. Responses it was asked for and events observed here need no identity. A subject
  of this node's own issuer cannot come from a peer: that would be a replay.
- In the mode `identified`, a guest (invitations/guests.py) needs no identity for what it was
  invited to, and an identity that cannot be verified passes as not asserted.
- A session may request `checks` new verifications per second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import time

import msgspec

from msgnode.bus.ports import Listener, Proof
from msgnode.core import addresses
from msgnode.core.digest import digest
from msgnode.core.errors import BadMessage, Forbidden, NotIdentified, TooMany, Unavailable
from msgnode.core.identity import Identity, Speaker
from msgnode.core.messages import Message
from msgnode.core.pending import Pending
from msgnode.core.token_bucket import TokenBucket

from .admission_policy import AdmissionPolicy, Mode, check_via, needs_no_identity, was_asked_of_peer
from .bindings import Binding, Bindings, key_name
from .claims import key_of
from .credentials import Credential, Rejected, Unknown, present
from .ports import NO_GUESTS, Guests
from .verifier import Verified, Verifier

_COMPONENTS = ("domain://", "domain-idp://", "mn:")
_MAX_CACHED = 4
"""Identities cached per session, as they were written."""
CHECKS_PER_SECOND = 50.0
"""New verifications of one session: a runtime needs one an hour; each takes time of the loop."""
_OF_PEER = 64
"""The session of a peer has so many times the limits of another, because it stands for many."""

_value = msgspec.json.Decoder().decode


@dataclass(slots=True)
class _CachedSpeaker:
    """The result for an identity as written; `base` is the session's own speaker at that time."""

    base: Speaker
    until: float
    speaker: Speaker


@dataclass(frozen=True, slots=True)
class AuthenticationRules:
    """What messages have to prove.

    Attributes:
        modes: which sessions must identify themselves, and how.
        managers: the addresses of the identity manager, which need no identity.
        passes_unknown: whether an identity that cannot be verified passes as none.
        checks: new verifications a second of a session.
    """

    modes: AdmissionPolicy
    managers: frozenset[str]
    passes_unknown: bool
    checks: float = CHECKS_PER_SECOND


class MessageAuthenticator:
    """One instance per worker.

    `log_in(session, verified)` binds a session to a subject, or (None) to none;
    `identified(session)` is called when a session identifies itself by a message and the mode
    accepts that.
    """

    def __init__(
        self,
        verifier: Verifier,
        rules: AuthenticationRules,
        bindings: Bindings,
        log_in: Callable[[Listener, Verified | None], object],
        identified: Callable[[Listener], None] = lambda _: None,
        now: Callable[[], float] = time,
        guests: Guests = NO_GUESTS,
    ) -> None:
        self.modes = rules.modes
        self._guests = guests
        self._verifier = verifier
        self._rules = rules
        self._bindings = bindings
        self._log_in = log_in
        self._identified = identified
        self._now = now
        self._cache: dict[str, dict[bytes, _CachedSpeaker]] = {}
        self._checks: dict[str, TokenBucket] = {}

    # --- messages ---------------------------------------------------------------------------------

    def speaker_of(self, message: Message, session: Listener) -> Speaker:
        """The session's speaker, with the identity of the message where it has one."""
        speaker = session.speaker
        known = speaker.identity
        if known is not None and 0 < known.expires <= self._now():
            self._log_in(session, None)
            speaker = session.speaker
        said = message.identity_fields
        if self.modes.is_open and not (said.identity or said.idToken or said.accessToken):
            return speaker
        raw = bytes(said.idToken or said.identity)
        if not raw or raw == b"null":
            return self._without(message, session, said.accessToken)
        cached = self._cache.get(session.id)
        entry = cached.get(raw) if cached is not None else None
        if entry is None or entry.base is not speaker or entry.until <= self._now():
            entry = self._authenticate(raw, message, session)
        mode = self.mode_of(session)
        if mode is Mode.STRICT:
            check_via(message, session)
        if entry.speaker.identity is None or (mode is Mode.STRICT and speaker.identity is None):
            self._demand(message, session)
        return entry.speaker

    def mode_of(self, session: Listener) -> Mode:
        """The mode for a session."""
        mode = self.modes.of(session.runtime_url)
        return Mode.IDENTIFIED if mode and session.speaker.peer else mode

    def authenticate(self, message: Message, speaker: Speaker) -> Verified | None:
        """The identity that opens a session, by the token in `open` or `re-open`, if any."""
        if message.type not in ("open", "re-open"):
            return None
        said = message.identity_fields
        raw = said.accessToken or said.idToken or said.identity
        credential = _credential(raw) if raw else None
        if credential is None:
            return None
        if not said.accessToken and not credential.idp:
            credential = self._verifier.ours(credential)
        try:
            if credential is None:
                raise Unknown
            verified = self._verifier.verify(credential)
        except Unknown:
            if self._rules.passes_unknown:
                return None
            raise
        self._check_bound(verified, message.sender.rstrip("/"), speaker)
        return verified

    def check_login(self, proof: Proof, session: Listener) -> None:
        """Check that a session may log in with a token. Raises Rejected if another holds it."""
        self._check_bound(proof, session.runtime_url, session.speaker)

    def holder(self, token_digest: str, runtime_url: str) -> str:
        """The runtime that a token, used by `runtime_url`, is bound to, "" if to none.

        Raises Pending, and Unavailable.
        """
        held = self._bindings.look(token_digest, runtime_url)
        return held.runtime_url if held is not None else ""

    def spend(self, session: Listener) -> None:
        """Count a verification for a session. Raises TooMany."""
        checks = self._checks.get(session.id)
        if checks is None:
            rate = self._rules.checks * (_OF_PEER if session.speaker.peer else 1)
            checks = self._checks[session.id] = TokenBucket(rate)
        if not checks.take():
            raise TooMany("This session asks for too many verifications: try again in a second.")

    # --- what others tell it ----------------------------------------------------------------------

    def session_closed(self, session: Listener, reason: str) -> None:
        """A SessionEnd, also for other workers' sessions: forget the identities used in it."""
        self.session_handed_off(session.id)
        self._bindings.runtime_ended(session.runtime_url)

    def session_handed_off(self, session_id: str) -> None:
        """Forget a session that has moved to another worker; its runtime's bindings stay."""
        self._cache.pop(session_id, None)
        self._checks.pop(session_id, None)

    def runtime_went(self, runtime_url: str) -> None:
        """A session of this runtime is with another worker: ask anew what is bound to it."""
        self._bindings.runtime_went(runtime_url)

    def forget(self) -> None:
        """Forget all results, because the issuers or the revocations have changed."""
        self._cache.clear()

    # --- steps ------------------------------------------------------------------------------------

    def _demand(self, message: Message, session: Listener) -> None:
        """Refuse a message without an identity if the mode requires one."""
        mode = self.mode_of(session)
        if mode is Mode.ANONYMOUS:
            return
        if needs_no_identity(message, self._rules.managers, session.runtime_url):
            return
        if session.speaker.peer and was_asked_of_peer(message):
            return
        if mode is Mode.STRICT:
            raise NotIdentified("Log in first: this node requires an identity for every session.")
        if self._guests.may_say(message, session):
            return
        raise NotIdentified("An identity is required: log in, or send one in `body.identity`.")

    def _without(self, message: Message, session: Listener, token: msgspec.Raw) -> Speaker:
        """Handle a message without an identity of its own, perhaps with an access token."""
        if token and not session.speaker.peer:
            self._take_access_token(bytes(token), message, session)
        speaker = session.speaker
        if self.modes.is_open:
            return speaker
        if speaker.identity is None:
            self._demand(message, session)
        elif self.mode_of(session) is Mode.STRICT:
            check_via(message, session)
        return speaker

    def _take_access_token(self, raw: bytes, message: Message, session: Listener) -> None:
        """Log a session in by an access token; bind one that the message shows to others."""
        base, key = session.speaker, b"accessToken:" + raw
        is_shown = not all(to.startswith(_COMPONENTS) for to in message.recipients)
        seen = self._cache.get(session.id, {}).get(key)
        if base.identity is not None and (not is_shown or (seen and seen.until > self._now())):
            return
        until = self._now() + 1.0
        try:
            credential = self._verifier.ours(_credential(msgspec.Raw(raw)))
            if credential is not None:
                verified = self._verified(credential, session)
                (self._bind if is_shown else self.check_login)(verified, session)
                if base.identity is None:
                    self._log_in(session, verified)
                until = verified.until
        except Pending:
            self._refund(session)
            raise
        except (Rejected, Unknown, Unavailable, TooMany):
            pass  # not ours, or not now: the mode decides
        if is_shown:
            self._remember(session, key, _CachedSpeaker(base, until, base))

    def _remember(self, session: Listener, key: bytes, entry: _CachedSpeaker) -> _CachedSpeaker:
        cached = self._cache.setdefault(session.id, {})
        cached[key] = entry
        if len(cached) > _MAX_CACHED * (_OF_PEER if entry.base.peer else 1):
            del cached[next(iter(cached))]
        return entry

    def _authenticate(self, raw: bytes, message: Message, session: Listener) -> _CachedSpeaker:
        """Verify an identity that is not cached for the session."""
        base = session.speaker
        credential = _credential(msgspec.Raw(raw))
        identity: Identity | None = None
        until = self._now() + 1.0
        if credential is not None:
            try:
                asked = credential if credential.idp else self._verifier.ours(credential)
                if asked is None:
                    raise Unknown
                verified = self._verified(asked, session)
                identity, until = verified.identity, verified.until
                self._check_subject(identity, base)
                self._check_peer(identity, base)
                self._bind(verified, session)
                if base.identity is None and self.mode_of(session) is Mode.IDENTIFIED:
                    self._identified(session)
            except Pending:
                self._refund(session)
                raise
            except Unknown:
                mode = self.mode_of(session)
                is_guest = mode is Mode.IDENTIFIED and self._guests.may_say(message, session)
                if not is_guest and (mode or not self._rules.passes_unknown):
                    raise
            except Unavailable:
                if credential.is_jwt or self.modes.of(session.runtime_url):
                    raise
        elif not self._rules.passes_unknown:
            raise BadMessage("The identity has no assertion that could be verified.")
        speaker = base if identity == base.identity else replace(base, identity=identity)
        return self._remember(session, raw, _CachedSpeaker(base, until, speaker))

    def _verified(self, credential: Credential, session: Listener) -> Verified:
        self.spend(session)
        return self._verifier.verify(credential)

    def _refund(self, session: Listener) -> None:
        """Refund a verification that must wait; it is counted when the message is carried again."""
        self._checks[session.id].left += 1

    def _check_subject(self, identity: Identity, base: Speaker) -> None:
        if base.identity is not None and not _same(base.identity, identity):
            raise Forbidden("This session is logged in as somebody else.")

    def _check_peer(self, identity: Identity, base: Speaker) -> None:
        own = self._verifier.book.embedded
        if base.peer and own is not None and identity.issuer == own.url:
            raise Forbidden(
                "Users of this domain must connect to this node, not through another node."
            )

    def _check_bound(self, proof: Proof, runtime_url: str, speaker: Speaker) -> None:
        """Refuse a token that another runtime, still present, has shown to its peers."""
        self._check_holder(self.holder(proof.digest, runtime_url), proof, runtime_url, speaker)

    @staticmethod
    def _check_holder(holder: str, proof: Proof, runtime_url: str, speaker: Speaker) -> None:
        if not holder or addresses.is_under(runtime_url, holder):
            return
        known = speaker.identity
        if known is None or not _same(known, proof.identity):
            raise Rejected("The token is in use by another runtime.")

    def _bind(self, verified: Verified, session: Listener) -> None:
        """Bind a token, and the key in it, to the runtime that uses it first."""
        url, ends = session.runtime_url, verified.identity.expires
        wanted = [Binding(verified.digest, url, url, ends)]
        if key_of(verified.nonce) is not None:
            name = key_name(url, verified.identity.issuer, verified.identity.subject)
            wanted.append(Binding(name, digest(verified.nonce), url, ends))
        for held, want in zip(self._bindings.bind(*wanted), wanted, strict=True):
            if want.name == verified.digest:
                self._check_holder(held.runtime_url, verified, url, session.speaker)
            elif held.value != want.value:
                raise Rejected("The token carries another key than this runtime's before.")


def _same(one: Identity, other: Identity) -> bool:
    return (one.issuer, one.subject) == (other.issuer, other.subject)


def _credential(raw: msgspec.Raw) -> Credential | None:
    try:
        return present(_value(raw))
    except (msgspec.DecodeError, RecursionError):
        raise BadMessage("The identity is not JSON that can be read.") from None
