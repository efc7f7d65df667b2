"""The provider as a worker asks it: assertions and tokens for a grant (cases 81 and 86).

The embedded one, and the script of examples/connectors in front of its pages, as a plain OAuth2
service that knows nothing of the node's sessions.
"""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.test import Client
from oauth2_provider.models import get_application_model, get_grant_model

from msgnode.core.digest import digest
from msgnode.identity.ports import AssertionRequest, Provider
from msgnode.identity.provider.backend import EmbeddedProvider
from msgnode.identity.provider.clients import CONNECTOR, OWN_PAGE, ensure_own_clients
from msgnode.identity.provider.revocation import end_logins
from msgnode.models import ControlMessage
from msgnode.net.http import Answer
from msgnode.scripts.ports import ScriptProvider
from tests.node import ROOT
from tests.scripts.stage import needs_deno, place

from .relying_party import BACK, RelyingParty

pytestmark = pytest.mark.django_db(transaction=True)
ISSUER = settings.PROVIDER["ISSUER"]
SECONDS = 30.0
GRANTS = ("login_url", "assertion", "access_token")
FRONT = "front"
"""The script's client at the service that it is in front of."""


class Asked:
    """A provider on a loop of its own; `back` is where its log-ins end, `client` whose they are."""

    def __init__(self, provider: Provider, run: Callable[..., Any], back: str, client: str) -> None:
        self.provider, self.back, self.client = provider, back, client
        self._run = run

    def __call__(self, name: str, *words: Any, **fields: Any) -> Any:
        """What a coroutine of the provider returns."""
        given = words or ((AssertionRequest(**fields),) if name in GRANTS else ())
        return self._run(getattr(self.provider, name)(*given))

    def returned(self, own: RelyingParty, contents: str) -> str:
        """The URL with which a log-in that the provider asked for comes back."""
        url = self("login_url", contents=contents)
        assert url.startswith(f"{ISSUER}/authorize/?")
        answer = own.browser.get(url.removeprefix(settings.PUBLIC_URL))
        assert answer["Location"].startswith(f"{self.back}?")
        return str(answer["Location"])


@contextmanager
def loop_beside() -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """Runs coroutines on a loop in a thread, as that of a worker, while the test uses the pages."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield lambda work: asyncio.run_coroutine_threadsafe(work, loop).result(SECONDS)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def service(method: str, url: str, body: bytes | None, headers: dict[str, str]) -> Answer:
    """What the pages of the embedded provider answer to the script."""
    parts = urlsplit(url)
    kind = headers.pop("content-type", "application/octet-stream")

    def asked() -> Answer:
        path = f"{parts.path}?{parts.query}"
        answer = Client().generic(method, path, body or b"", kind, headers=headers)
        return Answer(answer.status_code, answer.content, answer.headers["Content-Type"])

    return await asyncio.to_thread(asked)


@pytest.fixture(params=["embedded", pytest.param("script", marks=needs_deno)])
def ask(request: pytest.FixtureRequest, own: RelyingParty) -> Iterator[Asked]:
    with ExitStack() as stack:
        run = stack.enter_context(loop_beside())
        if request.param == "embedded":
            yield Asked(EmbeddedProvider(), run, f"{ISSUER}/done", CONNECTOR)
            return
        get_application_model().objects.create(
            client_id=FRONT, client_secret="s3cret", client_type="confidential", redirect_uris=BACK,
            authorization_grant_type="authorization-code", skip_authorization=True,
            algorithm="RS256",
        )  # fmt: skip
        pages = {"introspection": "introspect/", "revocation": "revoke/", "authorize": "authorize/",
                 "token": "token/", "userinfo": "userinfo/",
                 "jwks": ".well-known/jwks.json"}  # fmt: skip
        config = {name: f"{ISSUER}/{page}" for name, page in pages.items()}
        origin = "{0.scheme}://{0.netloc}".format(urlsplit(ISSUER))
        front = place(
            (ROOT / "examples" / "connectors" / "identity.js").read_text(), "identity",
            configuration={**config, "issuer": ISSUER, "clientIds": [FRONT], "back": BACK},
            origins=[origin], secrets={"basic": origin},
            values={"basic": base64.b64encode(f"{FRONT}:s3cret".encode()).decode()},
        )  # fmt: skip
        one = run(front.__aenter__())
        stack.callback(lambda: run(front.__aexit__(None, None, None)))
        one.port.script._world._clients[origin].request = service
        provider = ScriptProvider(one.port, EmbeddedProvider(), one.scripts.in_thread)
        yield Asked(provider, run, BACK, FRONT)


@pytest.fixture
def own(party: RelyingParty) -> RelyingParty:
    ensure_own_clients()
    ensure_own_clients()
    return party


def token_in(identity: dict[str, Any]) -> str:
    """The identity token of an assertion, which may be one itself."""
    text = str(identity["assertion"])
    return text if text.count(".") == 2 else str(json.loads(base64.b64decode(text))["tokenID"])


embedded = pytest.mark.parametrize("ask", ["embedded"], indirect=True)
"""For what a provider can do that shares its users with the node."""


def test_the_own_clients_have_no_secret_and_none_is_hashed(own: RelyingParty) -> None:
    clients = get_application_model().objects.filter(client_id__in=(OWN_PAGE, CONNECTOR))
    assert list(clients.values_list("client_secret", flat=True)) == ["", ""]


def test_case_81_without_a_grant_there_is_no_assertion(ask: Asked) -> None:
    assert ask("assertion", contents="1,2") is None
    assert ask("assertion", username_hint="alice") is None
    assert ask("assertion", username_hint=f"{ask.back}?code=x&state=y") is None
    assert ask("assertion", subject=("https://elsewhere.example.org", "1")) is None
    assert ask("access_token") is None


def test_case_81_the_login_that_came_back_is_a_grant_once(
    ask: Asked, own: RelyingParty, alice: Any
) -> None:
    url = ask.returned(own, "9,8,7")
    identity = ask("assertion", contents="9,8,7", username_hint=url)
    claims = own.claims(token_in(identity))
    assert (claims["iss"], claims["aud"], claims["nonce"]) == (ISSUER, ask.client, "9,8,7")
    assert claims["sub"] == str(alice.pk)
    assert identity["idp"] == {"domain": settings.DOMAIN, "protocol": "OIDC"}
    assert identity["expires"] == claims["exp"]
    assert ask("assertion", contents="9,8,7", username_hint=url) is None


@embedded
def test_an_assertion_has_its_claims_as_texts_and_the_profile(
    ask: Asked, own: RelyingParty
) -> None:
    identity = ask("assertion", username_hint=ask.returned(own, "9"))
    wrapped = json.loads(base64.b64decode(identity["assertion"]))
    assert all(isinstance(value, str) for value in wrapped["tokenIDJSON"].values())
    assert identity["userProfile"]["userURL"] == f"user://{settings.DOMAIN}/alice@example.org"


def test_a_key_that_is_a_nonce_comes_back_whole_and_fits_its_columns(
    ask: Asked, own: RelyingParty
) -> None:
    key = ",".join(str(200 + number % 56) for number in range(294))  # as that of RSA-2048
    url = ask.returned(own, key)
    own.nonce = key
    code = own.code()
    for grant in get_grant_model().objects.all():
        for field in grant._meta.fields:
            length = getattr(field, "max_length", None)
            assert length is None or len(str(getattr(grant, field.name))) <= length, field.name
    assert own.claims(own.redeem(code).json()["id_token"])["nonce"] == key
    identity = ask("assertion", contents=key, username_hint=url)
    assert own.claims(token_in(identity))["nonce"] == key
    assert "error=invalid_request" in own.ask(nonce="n" * 4097)["Location"]


def test_a_hint_that_is_no_url_is_no_grant(ask: Asked) -> None:
    for hint in ("http://[", "[alice]", "//["):
        assert ask("assertion", username_hint=hint) is None


def test_a_code_of_another_state_or_client_is_no_grant(ask: Asked, own: RelyingParty) -> None:
    url = ask.returned(own, "9")
    assert ask("assertion", username_hint=url.replace("state=", "state=x")) is None
    foreign = f"{ask.back}?code={own.code()}&state={own.state}"
    assert ask("assertion", username_hint=foreign) is None


@embedded
def test_a_session_that_is_logged_in_has_its_grant(
    ask: Asked, own: RelyingParty, alice: Any
) -> None:
    identity = ask("assertion", contents="5", subject=(ISSUER, str(alice.pk)))
    token = token_in(identity)
    assert own.claims(token)["nonce"] == "5"
    assert token_in(ask("assertion", contents="5", token=token)) == token
    assert ask("assertion", contents="6", token=token) is None


def test_a_user_who_was_switched_off_has_none(ask: Asked, own: RelyingParty, alice: Any) -> None:
    token = ask("access_token", username_hint=ask.returned(own, "8"))["accessToken"]
    assert ask("introspect", token)
    url = ask.returned(own, "9")
    alice.is_active = False
    alice.save()
    assert ask("assertion", username_hint=url) is None
    assert ask("assertion", subject=(ISSUER, str(alice.pk))) is None
    assert ask("introspect", token) is None


def test_case_86_access_tokens_are_introspected_and_revoked(
    ask: Asked, own: RelyingParty, alice: Any
) -> None:
    hint = ask.returned(own, "9")
    given = ask("access_token", username_hint=hint, resources=("calendar",))
    assert (given["domain"], given["resources"]) == (settings.DOMAIN, ["calendar"])
    claims = ask("introspect", given["accessToken"])
    assert (claims["iss"], claims["sub"]) == (ISSUER, str(alice.pk))
    assert (claims["email"], claims["client_id"]) == ("alice@example.org", ask.client)
    assert abs(claims["exp"] - given["expires"]) <= 1
    assert ask("revoke", given["accessToken"]) is True
    assert ask("introspect", given["accessToken"]) is None
    assert ask("revoke", given["accessToken"]) is False
    told = ControlMessage.objects.filter(kind="identity.revoked")
    assert {each.payload["token"] for each in told} == {digest(given["accessToken"])}


@embedded
def test_case_86_a_token_is_given_back_for_a_new_one(ask: Asked, alice: Any) -> None:
    first = ask("access_token", subject=(ISSUER, str(alice.pk)))
    second = ask("access_token", token=first["accessToken"])
    assert ask("introspect", first["accessToken"]) is None
    assert ask("introspect", second["accessToken"])


def test_a_token_of_the_browsers_client_is_introspected_too(ask: Asked, own: RelyingParty) -> None:
    claims = ask("introspect", own.tokens()["access_token"])
    assert (claims["client_id"], claims["preferred_username"]) == ("party", "alice")


def test_all_logins_of_a_user_end_at_once(ask: Asked, own: RelyingParty, alice: Any) -> None:
    tokens = own.tokens()
    end_logins(alice, close=True)
    assert ask("introspect", tokens["access_token"]) is None
    form = {"grant_type": "refresh_token", "client_id": "party"}
    refreshed = own.browser.post("/o/token/", {**form, "refresh_token": tokens["refresh_token"]})
    assert refreshed.status_code == 400
    told = ControlMessage.objects.get(kind="identity.revoked").payload
    assert (told["issuer"], told["subject"], told["close"]) == (ISSUER, str(alice.pk), True)


def test_the_keys_are_those_of_the_pages_and_the_clients_its_own(
    ask: Asked, own: RelyingParty
) -> None:
    assert ask("keys") == own.browser.get("/o/.well-known/jwks.json").json()
    theirs = {CONNECTOR, "party", "newcomer"} if ask.client == CONNECTOR else set()
    assert ask("client_ids") >= {ask.client} | theirs
    assert ask.provider.issuer == ISSUER
