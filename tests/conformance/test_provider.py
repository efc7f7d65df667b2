"""Cases 81 and 83 with the node's own provider: a grant, an assertion, and what it is good for."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.client import Client
from tests.node import Node

pytestmark = pytest.mark.long

IDM = "domain://idm.localhost"
ALICE = """
import json
from django.contrib.auth.models import User
from django.conf import settings
from msgnode.identity.provider import grants as provider_grants
from msgnode.identity.ports import AssertionRequest
user = User.objects.create_user("alice", "alice@localhost", "wonderland 7")
request = AssertionRequest(subject=(settings.PROVIDER["ISSUER"], str(user.pk)))
print(json.dumps(provider_grants.access_token(request)))
"""
SWITCH_OFF = """
from django.contrib.auth.models import User
from msgnode.identity.provider.revocation import end_logins
end_logins(User.objects.get(), close=True)
"""


async def execute(client: Client, method: str, **params: object) -> dict[str, object]:
    answer = await client.ask("execute", IDM, {"method": method, "params": params})
    found: dict[str, object] = answer["body"]
    return found


async def test_case_81_with_a_grant_an_identity_that_passes_case_71(
    start_node: Callable[..., Node],
) -> None:
    node = start_node()
    token = json.loads(node.manage("shell", "-c", ALICE).splitlines()[-1])["accessToken"]
    async with node.ws() as alice, node.ws() as bob, node.ws() as other:
        await alice.open()
        await bob.open()
        await other.open()

        endpoint = await execute(alice, "getLoginEndpoint")
        assert str(endpoint["value"]).startswith(f"http://localhost:{node.port}/o/authorize/?")

        asked = {"contents": "1,2,3", "origin": "o", "idpDomain": "localhost"}
        refused = await execute(alice, "generateAssertion", **asked)
        assert refused["code"] == 401
        assert refused["value"]["name"] == "IdPLoginError"  # type: ignore[index]
        assert "/o/authorize/?" in refused["value"]["loginUrl"]  # type: ignore[index]

        assert (await execute(alice, "login", token=token))["code"] == 200
        given = await execute(alice, "generateAssertion", **asked)
        assert given["code"] == 200
        identity = given["value"]
        assert identity["idp"]["domain"] == "localhost"  # type: ignore[index]

        await other.send("execute", bob.runtime_url, {"identity": identity}, id="asserted")
        (heard,) = [each for each in await bob.received_from(other) if each["id"] == "asserted"]
        assert heard["body"]["assertedIdentity"] is True

        checked = await execute(
            bob,
            "validateAssertion",
            assertion=identity["assertion"],
            origin="o",  # type: ignore[index]
        )
        assert checked["code"] == 200

        # Switched off by the operator, the session ends at once (4401).
        node.manage("shell", "-c", SWITCH_OFF)
        assert await alice.close_code() == 4401
        again = await execute(bob, "login", token=token)
        assert again["code"] == 401


async def test_a_token_that_a_peer_has_seen_is_neither_used_nor_renewed_nor_ended_by_it(
    start_node: Callable[..., Node],
) -> None:
    node = start_node()
    token = json.loads(node.manage("shell", "-c", ALICE).splitlines()[-1])["accessToken"]
    async with node.ws() as alice, node.ws() as bob:
        await alice.open()
        await bob.open()
        await alice.send("execute", bob.runtime_url, {"accessToken": token}, id="shown")
        (heard,) = [each for each in await bob.received_from(alice) if each["id"] == "shown"]
        assert heard["body"]["accessToken"] == token
        for method in ("login", "getAccessToken", "refreshAccessToken", "revokeAccessToken"):
            assert (await execute(bob, method, token=token))["code"] == 401, method
        renewed = await execute(alice, "refreshAccessToken", token=token)
        assert renewed["code"] == 200
        assert (await execute(alice, "revokeAccessToken", token=token))["code"] == 404
