"""Verification in one worker: what is kept, for how long, how much of it, and who may say it."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from joserfc import jwk, jwt

from msgnode.bus.table import RoutingTable
from msgnode.core import messages
from msgnode.core.errors import Forbidden, NotIdentified, TooMany, Unavailable
from msgnode.core.identity import Identity, Speaker
from msgnode.core.pending import Pending
from msgnode.identity import service
from msgnode.identity.admission_policy import AdmissionPolicy, Mode
from msgnode.identity.authenticator import AuthenticationRules, MessageAuthenticator
from msgnode.identity.bindings import Bindings
from msgnode.identity.credentials import Credential, Rejected, Unknown, present
from msgnode.identity.http import Fetcher, OutOfReach, url_fault
from msgnode.identity.issuers import Issuer, IssuerBook
from msgnode.identity.jwks import JwksCache
from msgnode.identity.revocation_list import Revocation
from msgnode.identity.verifier import CACHE_SECONDS, FAILURE_CACHE_SECONDS, Verifier
from tests.fakes import FakeSession
from tests.issuer import AUDIENCE
from tests.issuer import Issuer as Authority

_ORDER_OF_P256 = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


class Scene:
    """A verifier with a clock, and an issuer whose keys are pasted."""

    def __init__(self, authority: Authority, capacity: int = 100, rate: float = 100.0) -> None:
        self.authority = authority
        self.now = float(authority.claims()["iat"])
        key = authority.keys["k1"].as_dict(private=False, kid="k1")
        self.issuer = Issuer(
            authority.url,
            domains=(authority.domain,),
            audiences=frozenset({AUDIENCE}),
            jwks=json.dumps({"keys": [key]}),
            introspection_url=f"{authority.url}/introspect",
        )
        self.verifier = Verifier(
            JwksCache(_nothing, 60),
            Fetcher(2.0, (), True),
            None,
            60,
            capacity,
            rate,
            lambda: self.now,
        )
        self.verifier.use(IssuerBook([self.issuer]))

    def verify(self, token: str) -> Any:
        credential = present(token)
        assert credential is not None
        return self.verifier.verify(credential)

    async def ask(self, token: str, idp: str = "") -> Any:
        """For an opaque token, as a message does: once more when the answer is there."""
        credential = Credential(token, False, idp)
        try:
            return self.verifier.verify(credential)
        except Pending as fact:
            known = asyncio.Event()
            fact.when_known(known.set)
            await asyncio.wait_for(known.wait(), 10)
            return self.verifier.verify(credential)


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


async def _nothing(issuer: Issuer) -> dict[str, Any]:
    return {"keys": []}


def test_case_77_a_good_token_is_verified_once_in_five_minutes(issuer: Authority) -> None:
    scene = Scene(issuer)
    token = issuer.token()
    for _ in range(100):
        assert scene.verify(token).identity.username == f"alice@{issuer.domain}"
    assert scene.verifier.verifications == 1
    scene.now += CACHE_SECONDS + 1
    scene.verify(token)
    assert scene.verifier.verifications == 2


def test_a_bad_token_is_looked_at_again_after_seconds(issuer: Authority) -> None:
    scene = Scene(issuer)
    early = issuer.token(nbf=int(scene.now) + 62)
    with pytest.raises(Rejected, match="future"):
        scene.verify(early)
    scene.now += 3
    with pytest.raises(Rejected):
        scene.verify(early)
    assert scene.verifier.verifications == 1
    scene.now += FAILURE_CACHE_SECONDS
    assert scene.verify(early).identity.subject == "sub-alice"


def test_what_is_kept_is_bounded_and_a_flood_of_tokens_costs_no_memory(issuer: Authority) -> None:
    scene = Scene(issuer, capacity=10)
    known = issuer.token()
    for number in range(200):
        scene.verify(known)
        with pytest.raises(Unknown):
            scene.verify(f"eyJhbGciOiJSUzI1NiJ9.e30.{number}")
    assert scene.verifier.verifications == 1  # what is used stays
    assert len(scene.verifier._kept) == 10


def test_case_77_a_revocation_counts_for_what_was_issued_before(issuer: Authority) -> None:
    scene = Scene(issuer)
    before, after = issuer.token(), issuer.token(iat=int(scene.now) + 10)
    without = issuer.token(iat=None)
    other = issuer.token("bob")
    for token in (before, after, without, other):
        scene.verify(token)
    scene.verifier.revocations.add(Revocation(issuer.url, "sub-alice", at=scene.now + 5))
    for token in (before, without):
        with pytest.raises(Rejected, match="revoked"):
            scene.verify(token)
    scene.verify(after)
    digest = scene.verify(other).digest
    scene.verifier.revocations.add(Revocation(token=digest))
    with pytest.raises(Rejected, match="revoked"):
        scene.verify(other)


def test_an_issuer_taken_out_is_believed_no_longer(issuer: Authority) -> None:
    scene = Scene(issuer)
    token = issuer.token()
    scene.verify(token)
    scene.verifier.use(IssuerBook())
    with pytest.raises(Unknown):
        scene.verify(token)


async def test_opaque_tokens_are_asked_about_so_often_and_no_more(issuer: Authority) -> None:
    scene = Scene(issuer, rate=3.0)
    asked = issuer.asked["/introspect"]
    for number in range(3):
        with pytest.raises(Rejected):
            await scene.ask(f"nobody-knows-{number}")
    with pytest.raises(TooMany):
        await scene.ask("one-too-many")
    with pytest.raises(Rejected):
        await scene.ask("nobody-knows-1")  # known to be bad
    assert issuer.asked["/introspect"] == asked + 3


async def test_a_clock_that_is_set_back_keeps_nobody_out(issuer: Authority) -> None:
    scene = Scene(issuer)
    with pytest.raises(Rejected):
        await scene.ask("late")
    scene.now -= 3600
    for name in ("late", "new"):
        issuer.opaque[name] = {"sub": "s", "client_id": AUDIENCE, "exp": int(scene.now) + 600}
        assert (await scene.ask(name)).identity.subject == "s"


async def test_an_answer_that_is_no_answer_counts_as_out_of_reach(issuer: Authority) -> None:
    scene = Scene(issuer)
    issuer.is_up = False
    try:
        with pytest.raises(Unavailable):
            await scene.ask("anything")
    finally:
        issuer.is_up = True
    issuer.opaque["long"] = {"sub": "s", "client_id": AUDIENCE, "padding": "x" * 300_000}
    with pytest.raises(Unavailable):
        await scene.ask("long")
    issuer.opaque["other"] = {"sub": "s", "iss": "https://other.example", "client_id": AUDIENCE}
    with pytest.raises(Rejected):
        await scene.ask("other")


def test_a_token_is_good_for_the_leeway_after_its_end_and_no_longer(issuer: Authority) -> None:
    scene = Scene(issuer)
    scene.verify(issuer.token(exp=int(scene.now) - 59))
    with pytest.raises(Rejected, match="expired"):
        scene.verify(issuer.token(exp=int(scene.now) - 60))


def test_a_key_that_names_another_algorithm_is_not_used(issuer: Authority) -> None:
    scene = Scene(issuer)
    key = {**issuer.keys["k1"].as_dict(private=False, kid="k1"), "alg": "RS512"}
    scene.verifier.use(IssuerBook([replace(scene.issuer, jwks=json.dumps({"keys": [key]}))]))
    with pytest.raises(Unavailable, match="cannot use any of the keys"):
        scene.verify(issuer.token())


@pytest.mark.parametrize("said", [False, None, "no", "", 0])
async def test_an_address_that_is_not_verified_names_nobody(issuer: Authority, said: Any) -> None:
    scene, own = Scene(issuer), f"user://{issuer.domain}/sub-mallory"
    victim = f"alice@{issuer.domain}"
    claimed = {"email": victim, "email_verified": said, "preferred_username": victim}
    token = issuer.token("mallory", **claimed)
    assert scene.verify(token).identity.user_url == own
    issuer.opaque["taken"] = {"sub": "sub-mallory", "client_id": AUDIENCE, **claimed}
    who = (await scene.ask("taken")).identity
    assert (who.user_url, who.username, who.is_known_as(victim)) == (own, own, False)
    for profile in (
        {"userURL": f"user://{issuer.domain}/{victim}"},
        {"email": victim},
        {"preferred_username": victim},
    ):
        with pytest.raises(Rejected, match="not the token's"):
            scene.verifier.verify(Credential(token, True, issuer.domain, profile))


@pytest.mark.parametrize(
    "claims", [{"exp": 10**400}, {"iat": -(10**400)}, {"aud": [AUDIENCE, "b"], "azp": [AUDIENCE]}]
)
def test_claims_that_cannot_be_compared_are_refused(
    issuer: Authority, claims: dict[str, Any]
) -> None:
    with pytest.raises(Rejected):
        Scene(issuer).verify(issuer.token(**claims))


@pytest.mark.parametrize("subject", ["a\x00b", "a\nb", "\x00"])
def test_a_subject_that_cannot_be_printed_is_nobody(issuer: Authority, subject: str) -> None:
    with pytest.raises(Rejected, match="subject"):
        Scene(issuer).verify(issuer.token(sub=subject))


def test_groups_that_cannot_be_stored_are_left_out(issuer: Authority) -> None:
    token = issuer.token(groups=["staff", "a\x00b", 7])
    assert Scene(issuer).verify(token).identity.groups == ("staff",)


async def test_an_issuer_that_says_of_tokens_what_cannot_be_read_is_asked_once(
    issuer: Authority,
) -> None:
    scene = Scene(issuer)
    for name, said in {
        "client": {"sub": "s", "client_id": [AUDIENCE]},
        "end": {"sub": "s", "client_id": AUDIENCE, "exp": 10**400},
        "subject": {"sub": {}, "client_id": AUDIENCE},
    }.items():
        issuer.opaque[name] = said
        asked = issuer.asked["/introspect"]
        for _ in range(2):
            with pytest.raises((Rejected, Unavailable)):
                await scene.ask(name)
        assert issuer.asked["/introspect"] == asked + 1


async def test_an_issuer_taken_out_while_it_is_asked_is_believed_no_longer(
    issuer: Authority,
) -> None:
    scene = Scene(issuer)
    issuer.opaque["t"] = {"sub": "s", "client_id": AUDIENCE}
    issuer.gate.clear()
    try:
        with pytest.raises(Pending) as fact:
            scene.verifier.verify(Credential("t", False))
        known = asyncio.Event()
        fact.value.when_known(known.set)
        scene.verifier.use(IssuerBook())
    finally:
        issuer.gate.set()
    await asyncio.wait_for(known.wait(), 10)
    with pytest.raises(Unknown):
        scene.verifier.verify(Credential("t", False))


async def test_a_discovery_document_names_hosts_of_its_own_or_the_operators_only(
    issuer: Authority, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetcher = Fetcher(2.0, (), True)
    assert (await fetcher.jwks("", issuer.url))["keys"]
    with pytest.raises(OutOfReach, match="of another issuer"):
        await fetcher.jwks("", issuer.url.replace("127.0.0.1", "localhost"))
    monkeypatch.setattr(issuer, "keys_at", issuer.url.replace("127.0.0.1", "localhost"))
    with pytest.raises(OutOfReach):
        await fetcher.jwks("", issuer.url)
    settings.IDENTITY = {**settings.IDENTITY, "HOSTS": ["localhost"]}
    named = service._fetcher()
    assert (await named.jwks("", issuer.url))["keys"]
    await named.close()
    with pytest.raises(OutOfReach, match="not HTTPS"):
        await Fetcher(2.0, (), False).jwks("", issuer.url)
    for url in ("file:///etc/passwd", "http://10.0.0.1/", "https://u:p@idp/", "https://[", "//x"):
        assert url_fault(url, True), url
    assert not url_fault("https://idp.example:8443/keys", False)


# --- who may say it -------------------------------------------------------------------------------


class Stage(Scene):
    """Sessions that say identities to an authenticator."""

    def __init__(self, authority: Authority, mode: Mode = Mode.ANONYMOUS, **more: Any) -> None:
        super().__init__(authority)
        self.table = RoutingTable()
        self.bound: list[tuple[str, Any]] = []
        options = {"passes_unknown": True, "checks": 5.0, **more}
        is_live = self.table.runtimes.__contains__
        self.bindings = Bindings(is_live, 100, 10, now=lambda: self.now)
        rules = AuthenticationRules(AdmissionPolicy(mode, {}), frozenset(), **options)
        self.authenticator = MessageAuthenticator(
            self.verifier, rules, self.bindings, self.log_in, now=lambda: self.now
        )

    def log_in(self, session: Any, proof: Any) -> None:
        self.bound.append((session.id, proof))
        identity = proof.identity if proof is not None else None
        session.speaker = Speaker(session.id, session.runtime_url, identity=identity)

    def session(self, name: str) -> FakeSession:
        session = FakeSession(f"runtime://d/{name}")
        self.table.add_runtime(session)
        return session

    def say(self, session: FakeSession, to: str = "hyperty://d/9", **body: Any) -> Identity | None:
        raw = {"id": 1, "type": "create", "from": session.runtime_url, "to": to}
        message = messages.parse(json.dumps({**raw, "body": body}).encode())
        return self.authenticator.speaker_of(message, session).identity


def test_the_speaker_of_one_identity_is_one_value(issuer: Authority) -> None:
    stage = Stage(issuer)
    one = stage.session("1")
    raw = {"id": 1, "type": "create", "from": one.runtime_url, "to": "hyperty://d/9"}
    frame = json.dumps({**raw, "body": {"identity": issuer.identity()}}).encode()
    speakers = {
        id(stage.authenticator.speaker_of(messages.parse(frame), one)) for _ in range(5)
    }  # what policies have decided of a speaker is found again
    assert len(speakers) == 1


def test_an_unknown_issuer_passes_as_not_asserted_only_where_nothing_is_demanded(
    issuer: Authority,
) -> None:
    unknown = issuer.identity(token=issuer.token(iss="https://unknown.example"))
    odd: tuple[Any, ...] = (unknown, {"token": "x"}, 17, ["x"], {"assertion": 7}, None, "")
    for identity in odd:
        assert Stage(issuer).say(Stage(issuer).session("1"), identity=identity) is None
    for stage in (Stage(issuer, Mode.IDENTIFIED), Stage(issuer, Mode.STRICT)):
        for identity in odd:
            with pytest.raises(NotIdentified):
                stage.say(stage.session("1"), identity=identity)


def test_an_opaque_token_is_shown_to_the_provider_it_names_only(issuer: Authority) -> None:
    stage = Stage(issuer)
    assert stage.say(stage.session("1"), idToken="0paque") is None
    assert stage.say(stage.session("1"), accessToken="0paque") is None
    foreign = {"assertion": "0paque", "idp": {"domain": "elsewhere.example"}}
    assert stage.say(stage.session("1"), identity=foreign) is None
    assert not stage.verifier._asking


def test_an_identity_of_the_session_ends_with_its_token(issuer: Authority) -> None:
    stage = Stage(issuer)
    one = stage.session("1")
    assert stage.say(one, accessToken=issuer.token(exp=int(stage.now) + 10)) is not None
    stage.now += 60
    assert stage.say(one) is not None
    stage.now += 11
    assert stage.say(one) is None
    assert [proof is None for _, proof in stage.bound] == [False, True]


def test_a_bound_session_speaks_for_one_subject(issuer: Authority) -> None:
    stage = Stage(issuer)
    one = stage.session("1")
    stage.say(one, accessToken=issuer.token())
    assert stage.say(one, identity=issuer.identity()) is not None
    with pytest.raises(Forbidden):
        stage.say(one, identity=issuer.identity("bob"))
    unverifiable = issuer.identity(token=issuer.token(iss="https://unknown.example"))
    assert stage.say(one, identity=unverifiable) is None  # not asserted, though logged in


def test_a_token_that_was_said_is_its_runtimes_while_that_lives(issuer: Authority) -> None:
    stage = Stage(issuer)
    one, other, own = stage.session("1"), stage.session("2"), stage.session("3")
    identity = issuer.identity()
    stage.say(one, identity=identity)
    with pytest.raises(Rejected):
        stage.say(other, identity=identity)
    stage.say(own, accessToken=issuer.token())
    assert stage.say(own, identity=identity) is not None  # logged in as the same subject
    stage.table.remove_runtime(one)
    assert stage.say(other, identity=identity) is not None


def test_the_other_signature_of_an_elliptic_curve_makes_no_other_token(issuer: Authority) -> None:
    stage = Stage(issuer)
    one, other = stage.session("1"), stage.session("2")
    key = jwk.ECKey.generate_key("P-256", {"kid": "e1"})
    jwks = json.dumps({"keys": [key.as_dict(private=False)]})
    stage.verifier.use(IssuerBook([replace(stage.issuer, jwks=jwks)]))
    token = jwt.encode({"alg": "ES256", "kid": "e1"}, issuer.claims(), key)
    stage.say(one, identity=issuer.identity(token=token))
    content, _, signature = token.rpartition(".")
    octets = base64.urlsafe_b64decode(signature + "==")
    mirrored = _ORDER_OF_P256 - int.from_bytes(octets[32:])
    otherwise = f"{content}.{_base64(octets[:32] + mirrored.to_bytes(32))}"
    assert stage.verifier.verify(Credential(otherwise, True))  # it is a good signature, too
    with pytest.raises(Rejected):
        stage.say(other, identity=issuer.identity(token=otherwise))


def test_an_access_token_that_peers_have_seen_logs_none_of_them_in(issuer: Authority) -> None:
    stage = Stage(issuer)
    one, other, third = stage.session("1"), stage.session("2"), stage.session("3")
    token = issuer.token()
    assert stage.say(one, "domain://registry.d", accessToken=token) is not None
    assert stage.say(other, "domain://registry.d", accessToken=token) is not None  # nobody saw it
    shown = issuer.token()
    one.speaker = Speaker(one.id, one.runtime_url)
    assert stage.say(one, accessToken=shown) is not None
    assert stage.say(third, accessToken=shown) is None
    with pytest.raises(Rejected, match="another runtime"):
        stage.authenticator.check_login(stage.verify(shown), third)


def test_the_access_token_of_a_session_that_is_logged_in_binds_when_peers_are_shown_it(
    issuer: Authority,
) -> None:
    stage = Stage(issuer)
    one, third = stage.session("1"), stage.session("3")
    token, further = issuer.token(), issuer.token()
    assert stage.say(one, "domain://registry.d", accessToken=token) is not None
    for shown in (token, further, token):
        assert stage.say(one, accessToken=shown) is not None
        assert stage.say(third, accessToken=shown) is None
        with pytest.raises(Rejected, match="another runtime"):
            stage.authenticator.check_login(stage.verify(shown), third)


def test_the_access_token_of_somebody_else_in_a_message_binds_nothing_and_changes_nobody(
    issuer: Authority,
) -> None:
    stage = Stage(issuer)
    one, other = stage.session("1"), stage.session("2")
    own, of_another = issuer.token(), issuer.token(sub="somebody else")
    assert stage.say(other, accessToken=of_another) is not None
    speaker = stage.say(one, accessToken=own)
    assert stage.say(one, accessToken=of_another) == speaker
    assert stage.say(other, accessToken=of_another) == other.speaker.identity


def test_a_session_has_so_many_checks_a_second_and_no_other_pays(issuer: Authority) -> None:
    stage = Stage(issuer)
    one, other = stage.session("1"), stage.session("2")
    with pytest.raises(TooMany):
        for number in range(10):
            stage.say(one, idToken=issuer.token(iss=f"https://unknown{number}.example"))
    assert stage.say(other, identity=issuer.identity()) is not None
    stage.authenticator.session_closed(one, "")
    assert stage.say(one, idToken=issuer.token("bob")) is not None


@pytest.fixture
def start_issuer() -> Iterator[Callable[[], Authority]]:
    """Starts further issuers."""
    started: list[Authority] = []

    def start() -> Authority:
        started.append(Authority())
        return started[-1]

    yield start
    for each in started:
        each.stop()


async def test_an_issuer_that_freezes_takes_no_connections_from_the_others(
    issuer: Authority, start_issuer: Callable[[], Authority]
) -> None:
    scene, frozen = Scene(issuer), start_issuer()
    entered = [
        replace(scene.issuer, url=each.url, domains=(name,), introspection_url=f"{each.url}/i")
        for each, name in ((frozen, "frozen.test"), (issuer, "good.test"))
    ]
    scene.verifier.use(IssuerBook(entered))
    issuer.opaque["t"] = {"sub": "s", "client_id": AUDIENCE}
    frozen.gate.clear()
    waiting = [asyncio.ensure_future(scene.ask(f"t{n}", "frozen.test")) for n in range(40)]
    await asyncio.sleep(0)  # they are on their way
    async with asyncio.timeout(1.5):  # the frozen one has two seconds for each
        assert (await scene.ask("t", "good.test")).identity.subject == "s"
    for fault in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(fault, Unavailable)


async def test_whoever_says_that_a_token_is_anothers_issuer_does_not_make_it_invalid(
    issuer: Authority, start_issuer: Callable[[], Authority]
) -> None:
    scene, other = Scene(issuer), start_issuer()
    elsewhere = replace(
        scene.issuer, url=other.url, domains=("b.test",), introspection_url=f"{other.url}/i"
    )
    scene.verifier.use(IssuerBook([scene.issuer, elsewhere]))
    issuer.opaque["t"] = {"sub": "s", "client_id": AUDIENCE}
    with pytest.raises(Rejected):
        await scene.ask("t", "b.test")
    with pytest.raises(Unknown):
        await scene.ask("t", "nowhere.test")
    assert (await scene.ask("t", issuer.domain)).identity.subject == "s"


async def test_an_issuer_that_is_slow_delays_nobody_whom_another_knows(
    issuer: Authority, start_issuer: Callable[[], Authority]
) -> None:
    scene, slow, third = Scene(issuer), start_issuer(), start_issuer()
    entered = [
        replace(scene.issuer, url=each.url, introspection_url=f"{each.url}/introspect")
        for each in (slow, issuer, third)
    ]
    scene.verifier.use(IssuerBook(entered))
    issuer.opaque["t"] = {"sub": "s", "client_id": AUDIENCE}
    slow.gate.clear()
    async with asyncio.timeout(1.9):  # the slow one has two seconds
        assert (await scene.ask("t")).identity.subject == "s"
    with pytest.raises(Unavailable):
        await scene.ask("nobody knows it")
    slow.gate.set()
    with pytest.raises(Rejected):
        await scene.ask("nor this")


async def test_who_believes_a_token_decides_whatever_others_say_of_it(
    issuer: Authority, start_issuer: Callable[[], Authority]
) -> None:
    scene, other = Scene(issuer), start_issuer()
    entered = [
        replace(scene.issuer, url=each.url, introspection_url=f"{each.url}/introspect")
        for each in (other, issuer)
    ]
    scene.verifier.use(IssuerBook(entered))
    other.opaque["t"] = {"sub": "s", "client_id": "for somebody else", "exp": 1}
    issuer.opaque["t"] = {"sub": "s", "client_id": AUDIENCE}
    assert (await scene.ask("t")).identity.issuer == issuer.url


async def test_a_token_that_the_own_provider_knows_is_shown_to_nobody_else(
    issuer: Authority,
) -> None:
    scene = Scene(issuer)
    own = replace(
        scene.issuer, url="https://own", introspection_url="", is_embedded=True, domains=("own",)
    )

    class Provider:
        async def introspect(self, token: str) -> dict[str, Any] | None:
            return {"sub": "s", "client_id": AUDIENCE} if token == "own" else None

    scene.verifier._provider = Provider()  # type: ignore[assignment]  # introspects, no more
    scene.verifier.use(IssuerBook([scene.issuer, own]))
    asked = issuer.asked["/introspect"]
    assert (await scene.ask("own")).identity.issuer == "https://own"
    assert issuer.asked["/introspect"] == asked
    issuer.opaque["theirs"] = {"sub": "s", "client_id": AUDIENCE}
    assert (await scene.ask("theirs")).identity.issuer == issuer.url
