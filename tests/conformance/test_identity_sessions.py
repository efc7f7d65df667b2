"""Cases 80, 81, 83, 84, 85 and 87: the identity manager, logins, and what nobody can pretend.

Of 81 the login and the grant, and 82, need the node's own OpenID provider. The foreign side of 87
is a runtime of another domain on our protostub.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from tests import waiting
from tests.client import SESSION, Client, address, code, runtime
from tests.conftest import Come
from tests.issuer import Issuer, enter, tell
from tests.node import Node, eventually, running

IDM, ALIAS = "domain://idm.localhost", "domain-idp://localhost"


async def execute(client: Client, method: str, to: str = IDM, **params: Any) -> dict[str, Any]:
    answer = await client.ask("execute", to, {"method": method, "params": params})
    assert answer["from"] == to
    return answer["body"]


async def login(client: Client, token: str) -> dict[str, Any]:
    return await execute(client, "login", token=token)


async def come_from(node: Node, domain: str) -> Client:
    client = await node.ws().connect()
    return await client.open(runtime().replace("localhost", domain))


# --- 80, 81 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", [IDM, ALIAS])
async def test_case_80_an_assertion_is_validated(
    come: Come, idnode: Node, issuer: Issuer, to: str
) -> None:
    client = await come(to=idnode)
    identity = issuer.identity(token=issuer.token(nonce="n-1"))
    params = {"assertion": identity["assertion"], "origin": "https://app.example"}
    for form in (params, [params], [[name, value] for name, value in params.items()]):
        body = {"resource": "identity", "method": "validateAssertion", "params": form}
        answer = (await client.ask("execute", to, body))["body"]
        assert answer["code"] == 200
        assert answer["value"]["identity"] == f"alice@{issuer.domain}"
        assert answer["value"]["contents"] == "n-1"
        assert answer["value"]["assertedIdentity"] is True
    body = await execute(client, "validateAssertion", to, **params, contents="n-2")
    assert body["code"] == 401
    forged = issuer.identity(token=issuer.token(aud="other"))["assertion"]
    assert (await execute(client, "validateAssertion", to, assertion=forged))["code"] == 401


async def test_case_80_whatever_is_asked_is_answered(come: Come, idnode: Node) -> None:
    client = await come(to=idnode)
    for body, expected in (
        ({"method": "validateAssertion", "params": {"assertion": "garbage"}}, 401),
        ({"method": "validateAssertion", "params": {"assertion": 17}}, 400),
        ({"method": "validateAssertion"}, 400),
        ({"method": "validateAssertion", "params": "text"}, 400),
        ({"method": "validateAssertion", "params": [1, 2]}, 400),
        ({"method": "makeCoffee"}, 400),
        ({"method": 17}, 400),
        ({}, 400),
        ({"method": "login", "params": {}}, 400),
        ({"method": "login", "params": {"token": "a.b.c"}}, 401),
        ({"method": "revokeAccessToken"}, 400),
    ):
        answer = (await client.ask("execute", IDM, body))["body"]
        assert answer["code"] == expected, (body, answer)
        assert answer["description"]
    for type_ in ("create", "update", "delete", "subscribe"):
        assert code(await client.ask(type_, IDM, {})) == 400
    assert code(await client.ask("read", IDM, {"resource": 17})) == 400
    assert code(await client.ask("read", IDM, {"resource": "/identity/nobody@idp.test"})) == 404


async def test_case_80_who_is_logged_in_can_be_read(
    come: Come, idnode: Node, issuer: Issuer
) -> None:
    one, other = await come(to=idnode), await come(to=idnode)
    assert code(await one.ask("read", IDM, {})) == 404
    assert (await login(one, issuer.token("nora")))["code"] == 200
    own = (await one.ask("read", IDM, {}))["body"]["value"]
    assert own["userURL"] == f"user://{issuer.domain}/nora@{issuer.domain}"
    for name in ("/identity/nora@idp.test", own["userURL"], "nora@idp.test"):
        found = (await other.ask("read", IDM, {"resource": name}))["body"]
        assert found["value"]["sub"] == "sub-nora", name
        assert "expires" not in found["value"]


async def test_case_81_without_a_provider_of_its_own_the_node_says_so(
    come: Come, idnode: Node
) -> None:
    client = await come(to=idnode)
    foreign = await execute(client, "generateAssertion", idpDomain="elsewhere.example")
    assert foreign["code"] == 400


# --- 83 -------------------------------------------------------------------------------------------


async def test_case_83_a_login_binds_the_session_and_a_logout_frees_it(
    come: Come, idnode: Node, issuer: Issuer
) -> None:
    client, peer = await come(to=idnode), await come(to=idnode)
    to = f"{peer.runtime_url}/sm"
    bound = await login(client, issuer.token())
    assert bound["code"] == 200
    assert bound["value"]["username"] == f"alice@{issuer.domain}"
    await client.send("create", to, {}, id="in")
    assert (await peer.expect(id="in"))["body"]["assertedIdentity"] is True
    assert (await login(client, issuer.token("bob")))["code"] == 403
    as_bob = await client.ask("create", to, {"identity": issuer.identity("bob")})
    assert code(as_bob) == 403
    assert (await execute(client, "logout"))["code"] == 200
    await client.send("create", to, {}, id="out")
    assert "assertedIdentity" not in (await peer.expect(id="out"))["body"]


@pytest.mark.parametrize("way", ["header", "query", "subprotocol", "open", "first message"])
async def test_case_83_a_token_of_the_connection_logs_in(
    come: Come, idnode: Node, issuer: Issuer, way: str
) -> None:
    peer = await come(to=idnode)
    token = issuer.token("carol")
    client = idnode.ws()
    if way == "header":
        await client.connect(additional_headers={"Authorization": f"Bearer {token}"})
    elif way == "query":
        client.url += f"?access_token={token}"
        await client.connect()
    elif way == "subprotocol":
        await client.connect(subprotocols=["msgnode", f"bearer.{token}"])
        assert client.socket.subprotocol == "msgnode"
    else:
        await client.connect()
    if way == "open":
        client.runtime_url = runtime()
        opened = await client.ask("open", SESSION, {"accessToken": token})
        assert code(opened) == 200
    else:
        await client.open()
    body = {"accessToken": token} if way == "first message" else {}
    to = f"{peer.runtime_url}/sm"
    await client.send("create", to, body, id="first")
    assert (await peer.expect(id="first"))["body"]["assertedIdentity"] is True
    await client.send("create", to, {}, id="second")
    assert (await peer.expect(id="second"))["body"]["assertedIdentity"] is True
    await client.hang_up()


async def test_an_operator_sends_a_message_as_who_a_token_names(
    idnode: Node, issuer: Issuer
) -> None:
    words = ("--type", "read", "--from", runtime().replace("localhost", "strict.test"), "--json")
    token = issuer.token("olga")
    said = await asyncio.to_thread(idnode.manage, "node_send", IDM, *words, "--token", token)
    assert json.loads(said)["body"]["value"]["sub"] == "sub-olga"


async def test_case_83_a_bad_token_of_the_connection_is_refused(
    idnode: Node, issuer: Issuer
) -> None:
    client = idnode.ws()
    token = issuer.token(aud="other")
    await client.connect(additional_headers={"Authorization": f"Bearer {token}"})
    assert await client.close_code() == 4401
    async with idnode.ws() as other:
        opened = await other.ask("open", SESSION, {"idToken": token}, sender=runtime())
        assert code(opened) == 401


async def test_who_opens_with_one_bad_token_after_another_is_sent_away(
    idnode: Node, issuer: Issuer
) -> None:
    client = await idnode.ws().connect()
    for number in range(10):
        body = {"idToken": issuer.token(aud=f"other-{number}")}
        await client.send("open", SESSION, body, sender=runtime(), id=number)
        assert code(await client.answer(number)) == 401
    assert await client.close_code() == 4401


async def test_case_83_a_bound_session_is_taken_up_by_its_token_or_its_subject_only(
    idnode: Node, issuer: Issuer
) -> None:
    alice = await idnode.ws().connect()
    await alice.open()
    token, held = issuer.token(), address()
    assert (await login(alice, token))["code"] == 200
    await alice.subscribe(held)
    alice.cut()
    guesser = await idnode.ws().connect()
    guess = await guesser.reopen(alice.runtime_url, "00000000-0000-4000-8000-000000000000")
    assert guess["body"]["runtimeToken"]  # a fresh, empty session
    assert code(await guesser.subscribe(held)) == 403
    anonymous = await idnode.ws().connect()
    await anonymous.open(alice.runtime_url)
    assert code(await anonymous.subscribe(held)) == 403
    as_bob = await idnode.ws().connect(
        additional_headers={"Authorization": f"Bearer {issuer.token('bob')}"}
    )
    stolen = await as_bob.reopen(alice.runtime_url, alice.token)
    assert code(stolen) == 403
    back = await idnode.ws().connect()
    assert code(await back.reopen(alice.runtime_url, alice.token)) == 200
    await back.send("read", IDM, {}, id="me")
    assert (await back.answer("me"))["body"]["value"]["sub"] == "sub-alice"
    assert code(await back.subscribe(held)) == 200
    for client in (guesser, anonymous, as_bob, back):
        await client.hang_up()


async def test_case_83_a_token_that_peers_have_seen_opens_no_session_for_them(
    idnode: Node, issuer: Issuer
) -> None:
    alice, peer = await idnode.ws().connect(), await idnode.ws().connect()
    await alice.open()
    await peer.open()
    token = issuer.token("trudy")
    await alice.send("create", f"{peer.runtime_url}/sm", {"idToken": token}, id="said")
    assert (await peer.expect(id="said"))["body"]["assertedIdentity"] is True
    headers = {"Authorization": f"Bearer {token}"}
    thief = await idnode.ws().connect(additional_headers=headers)
    for runtime_url in (runtime(), alice.runtime_url):
        assert code(await thief.ask("open", SESSION, {}, sender=runtime_url)) == 401
        assert code(await thief.ask("open", SESSION, {"idToken": token}, sender=runtime_url)) == 401
    assert code(await peer.ask("open", SESSION, {"idToken": token}, sender=peer.session_url)) == 401
    stub = await idnode.stub(runtime()).connect(additional_headers=headers)
    assert await stub.close_code() == 4403
    body = {"idToken": token}
    alice.cut()  # its own runtime takes it up, by its session's token
    back = await idnode.ws().connect()
    again = await back.ask("re-open", SESSION, body, sender=alice.session_url)
    assert again["body"] == {"code": 200}
    await back.send("read", IDM, {}, id="me", sender=alice.runtime_url)
    assert (await back.answer("me"))["body"]["value"]["sub"] == "sub-trudy"
    for client in (thief, peer, back):
        await client.hang_up()


@pytest.mark.parametrize("closes", [True, False])
async def test_case_83_a_revocation_ends_what_the_subject_has_at_once(
    idnode: Node, issuer: Issuer, closes: bool
) -> None:
    user = f"victor{closes}"
    client, other = await idnode.ws().connect(), await idnode.ws().connect()
    await client.open()
    await other.open()
    assert (await login(client, issuer.token(user)))["code"] == 200
    assert (await login(other, issuer.token("walter")))["code"] == 200
    database = idnode.data_dir / "node.sqlite3"
    tell(
        database, "identity.revoked", issuer=issuer.url, subject=f"sub-{user}",
        close=closes, at=time.time(),
    )  # fmt: skip
    if closes:
        assert await client.close_code() == 4401
    else:
        await waiting.seen(lambda: client.ask("read", IDM, {}), lambda said: code(said) != 200)
        assert (await login(client, issuer.token(user)))["code"] == 401
    assert code(await other.ask("read", IDM, {})) == 200
    await client.hang_up()
    await other.hang_up()


async def test_who_is_named_by_a_claim_logs_in_again_when_the_issuer_does_not_vouch_for_it(
    start_node: Callable[..., Node], make_issuer: Callable[[], Issuer]
) -> None:
    node, issuer = start_node(), make_issuer()
    database = node.data_dir / "node.sqlite3"
    enter(database, issuer.row(name_claim="email"), changed=True)
    client = await node.ws().connect()
    await client.open()
    token = issuer.token(email_verified=None)
    said = await waiting.seen(lambda: login(client, token), lambda said: said["code"] == 200)
    assert said["value"]["username"] == f"alice@{issuer.domain}"
    enter(database, issuer.row(name_claim=""), changed=True)
    await waiting.seen(lambda: client.ask("read", IDM, {}), lambda said: code(said) != 200)
    again = await login(client, token)
    assert again["value"]["userURL"] == f"user://{issuer.domain}/sub-alice"
    enter(database, issuer.row(name_claim="email"))
    node.kill()
    node.start()  # the session is restored, and is not named as the issuer names its users now
    back = await node.ws().connect()
    assert code(await back.reopen(client.runtime_url, client.token)) == 200
    assert code(await back.ask("read", IDM, {})) == 404
    await back.hang_up()


# --- admission ------------------------------------------------------------------------------------


async def test_identified_means_a_message_needs_an_identity(idnode: Node, issuer: Issuer) -> None:
    client = await come_from(idnode, "identified.test")
    peer = await come_from(idnode, "localhost")
    to = f"{peer.runtime_url}/sm"
    assert code(await client.ask("create", to, {})) == 401
    assert code(await client.ask("create", to, {"accessToken": "somebody-else's"})) == 401
    await client.send("create", to, {"identity": issuer.identity()}, id="with")
    assert (await peer.expect(id="with"))["body"]["assertedIdentity"] is True
    await client.send("handshake", to, {"handshakePhase": "senderHello", "value": "x"}, id="h")
    assert (await peer.expect(id="h"))["body"]["value"] == "x"
    await peer.subscribe(f"{client.runtime_url}/status")
    await client.send("update", f"{client.runtime_url}/status", {"value": "live"}, id="s")
    assert (await peer.expect(id="s"))["body"]["value"] == "live"
    assert code(await client.ask("update", f"{peer.runtime_url}/status", {"value": "live"})) == 401
    assert (await login(client, issuer.token()))["code"] == 200
    await client.send("create", to, {}, id="logged in")
    assert (await peer.expect(id="logged in"))["body"]["assertedIdentity"] is True
    both = [f"{peer.runtime_url}/status", to]
    await execute(client, "logout")
    assert code(await client.ask("create", both, {})) == 401
    await client.hang_up()
    await peer.hang_up()


async def test_strict_means_the_session_is_logged_in(idnode: Node, issuer: Issuer) -> None:
    client = await come_from(idnode, "strict.test")
    peer = await come_from(idnode, "localhost")
    to = f"{peer.runtime_url}/sm"
    identity = issuer.identity()
    assert code(await client.ask("create", to, {"identity": identity})) == 401
    assert (await login(client, issuer.token()))["code"] == 200
    await client.send("create", to, {"identity": identity}, id="own")
    assert (await peer.expect(id="own"))["body"]["assertedIdentity"] is True
    assert code(await client.ask("create", to, {"identity": issuer.identity("bob")})) == 403
    for via, expected in (
        (client.session_url, 0),
        ("runtime://localhost/protostub/1b4e28ba/5f", 0),
        (f"{peer.runtime_url}/{peer.token}", 403),
    ):
        await client.send("create", to, {"via": via}, id="via")
        if expected:
            assert code(await client.answer("via")) == expected
        else:
            assert (await peer.expect(id="via"))["type"] == "create"
    await client.hang_up()
    await peer.hang_up()


async def log_in_at_once(node: Node, issuer: Issuer) -> Client:
    """Somebody who says who they are before their time is over; what comes before that works."""
    client = await come_from(node, "strict.test")
    assert (await execute(client, "getLoginEndpoint"))["code"] in (200, 401)
    assert (await login(client, issuer.token(client.token)))["code"] == 200
    return client


@pytest.mark.long
async def test_who_does_not_say_who_they_are_in_time_is_sent_away(
    tmp_path: Path, template: Path, issuer: Issuer
) -> None:
    shutil.copy(template, tmp_path / "rows.sqlite3")
    enter(tmp_path / "rows.sqlite3", issuer.row())
    settings = {
        "ADMISSION": "identified",
        "ADMISSION_DOMAINS": "localhost=anonymous,strict.test=strict",
        "IDENTIFY_TIMEOUT": "3",
        "HANDSHAKE_TIMEOUT": "3",
    }
    with running(tmp_path / "node", tmp_path / "rows.sqlite3", **settings) as node:
        provisional = await node.ws().connect()
        await provisional.ask("open", SESSION)
        silent = [await come_from(node, domain) for domain in ("strict.test", "some.test")]
        anonymous = await come_from(node, "localhost")
        logged_in, left = [await log_in_at_once(node, issuer) for _ in range(2)]
        body = {"idToken": issuer.token("tess")}
        by_message = await come_from(node, "some.test")
        await by_message.send("create", f"{anonymous.runtime_url}/sm", body, id="said")
        await anonymous.expect(id="said")
        for client in silent:
            assert await client.close_code() == 4401
        assert (await execute(left, "logout"))["code"] == 200
        assert await left.close_code() == 4401
        assert await provisional.close_code() == 4401
        again = await come_from(node, "some.test")
        assert await again.close_code() == 4401  # the others have lasted that long twice
        assert code(await logged_in.ask("read", IDM, {})) == 200
        await by_message.send("create", f"{anonymous.runtime_url}/sm", body, id="still")
        await anonymous.expect(id="still")
        for client in (logged_in, by_message, anonymous):
            await client.hang_up()


@pytest.mark.long
async def test_what_was_bound_and_owned_outlives_the_process(
    start_node: Callable[..., Node], issuer: Issuer, tmp_path: Any
) -> None:
    node = start_node()
    enter(node.data_dir / "node.sqlite3", issuer.row(), changed=True)
    alice, left, held = await node.ws().connect(), address(), address()
    await alice.open()
    await waiting.seen(lambda: login(alice, issuer.token()), lambda said: said["code"] == 200)
    gone = await node.ws().connect()
    await gone.open()
    await login(gone, issuer.token())
    await gone.subscribe(left)
    await gone.close_session()
    await alice.subscribe(held)
    node.kill()
    node.start()
    mallory = await node.ws().connect()
    await mallory.open()
    assert code(await mallory.subscribe(left)) == 403
    back = await node.ws().connect()
    assert code(await back.reopen(alice.runtime_url, alice.token)) == 200
    assert (await back.ask("read", IDM, {}))["body"]["value"]["sub"] == "sub-alice"
    assert code(await back.subscribe(left)) == 200
    await back.hang_up()
    await mallory.hang_up()


@pytest.mark.long
async def test_the_alarm_about_an_issuer_ends_when_it_is_there_again_or_taken_out(
    start_node: Callable[..., Node], make_issuer: Callable[..., Issuer]
) -> None:
    node = start_node()
    returning, leaving = make_issuer("returns.test"), make_issuer("leaves.test")
    returning.is_up = leaving.is_up = False
    database = node.data_dir / "node.sqlite3"
    enter(database, returning.row(), leaving.row(), changed=True)

    async def alarms(of: list[str]) -> None:
        sql = "SELECT subject FROM msgnode_alarm WHERE kind = 'issuer-out-of-reach'"
        limit = time.monotonic() + 20
        while sorted(of) != sorted(row[0] for row in node.rows(f"{sql} AND cleared_at IS NULL")):
            assert time.monotonic() < limit
            await eventually()

    async def logged_in(issuer: Issuer, wanted: int) -> None:
        client = await node.ws().connect()
        await client.open()
        await waiting.seen(
            lambda: login(client, issuer.token()), lambda said: said["code"] == wanted
        )
        await client.hang_up()

    await logged_in(returning, 503)
    await alarms([returning.url])
    node.kill()
    node.start()
    returning.is_up = True
    await logged_in(returning, 200)
    await alarms([])
    await logged_in(leaving, 503)
    await alarms([leaving.url])
    enter(database, leaving.row(is_enabled=False), changed=True)
    await alarms([])


@pytest.mark.long
async def test_a_page_of_another_origin_is_kept_out(start_node: Callable[..., Node]) -> None:
    node = start_node(WS_ORIGINS="https://app.example,http://localhost:9")
    for origin, may in (
        ("https://app.example", True),
        ("https://APP.example:443", True),
        ("https://evil.example", False),
        ("http://app.example", False),
        ("https://app.example.evil.example", False),
        ("null", False),
        (None, True),
    ):
        client = node.ws()
        if may:
            await client.connect(origin=origin)
            await client.hang_up()
        else:
            with pytest.raises(InvalidStatus) as refused:
                await client.connect(origin=origin)
            assert refused.value.response.status_code == 403


# --- 84, 85, 87 -----------------------------------------------------------------------------------


PHASES = (
    "startHandShake", "senderHello", "receiverHello", "senderCertificate",
    "receiverFinishedMessage", "reporterSessionKey", "receiverAcknowledge",
)  # fmt: skip


@pytest.mark.parametrize("domain", ["localhost", "identified.test"])
async def test_case_85_handshakes_pass_unchanged(idnode: Node, domain: str) -> None:
    one, other = await come_from(idnode, domain), await come_from(idnode, "localhost")
    for number, phase in enumerate(PHASES):
        value = '{"b":[1, 2.50,"\\u00e9",{"iv" :"AAAA=="}],  "a":null}'
        raw = (
            '{"id":%d,"type":"handshake","from":"%s","to":"%s/sm",'
            '"body":{"handshakePhase":"%s","value":%s}}'
        )
        await one.send_raw(raw % (number, one.runtime_url, other.runtime_url, phase, value))
        frame = await other.socket.recv()
        assert isinstance(frame, str)
        assert value in frame
        assert json.loads(frame)["body"]["handshakePhase"] == phase
    await one.hang_up()
    await other.hang_up()


async def test_case_87_an_access_token_does_not_leave_its_domain(
    come: Come, idnode: Node, issuer: Issuer
) -> None:
    ours, foreign = await come(to=idnode), await come_from(idnode, "b.example")
    for token, kept in (
        ("opaque", False),
        (issuer.token(), False),
        (issuer.token(aud="https://b.example/"), True),
    ):
        body = {"accessToken": token, "value": 1}
        await ours.send("update", foreign.runtime_url, body, id=token[-9:])
        told = await foreign.expect(id=token[-9:])
        assert ("accessToken" in told["body"]) is kept
        assert told["body"]["value"] == 1
    await foreign.hang_up()


async def test_case_87_what_another_node_asserted_is_verified_again(
    come: Come, idnode: Node, issuer: Issuer
) -> None:
    """The marks of the node before us count for nothing, the assertion does."""
    ours, foreign = await come(to=idnode), await come_from(idnode, "b.example")
    claimed = {"assertedIdentity": True, "auth": True}
    await foreign.send("create", ours.runtime_url, {**claimed, "value": 1}, id="bare")
    assert (await ours.expect(id="bare"))["body"] == {"auth": False, "value": 1}
    good = {**claimed, "identity": issuer.identity("erin")}
    await foreign.send("create", ours.runtime_url, good, id="good")
    told = (await ours.expect(id="good"))["body"]
    assert told == {"auth": False, "assertedIdentity": True, "identity": good["identity"]}
    late = issuer.identity(token=issuer.token(exp=int(time.time()) - 3600))
    answer = await foreign.ask("create", ours.runtime_url, {**claimed, "identity": late})
    assert code(answer) == 401
    await foreign.hang_up()
