"""The domain's provider as the script of examples/connectors, in front of a plain OAuth2 service.

Cases 77, 78, 81, 83 and 86 of identity: what the embedded provider answers in tests/conformance.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests import waiting
from tests.client import Client
from tests.issuer import AUDIENCE, Issuer
from tests.node import ROOT, Node
from tests.scripts.stage import needs_deno

pytestmark = needs_deno

IDM = "domain://idm.localhost"
BASIC = "dGhlLW5vZGU6c2VjcmV0"
BACK = "https://app.example/back"


class Service(Issuer):
    """An OAuth2 service: its own identity tokens for a code, to clients that know the secret."""

    def answer_to(self, path: str, form: dict[str, str], headers: Any) -> tuple[int, Any]:
        if path in ("/token", "/introspect") and headers["Authorization"] != f"Basic {BASIC}":
            return 401, {"error": "invalid_client"}
        if path != "/token":
            return super().answer_to(path, form, headers)
        if form.get("code") != "good" or len(form.get("code_verifier", "")) < 43:
            return 400, {"error": "invalid_grant"}
        said = {"id_token": self.token(preferred_username="alice"), "access_token": "opaque-1"}
        return 200, {**said, "expires_in": 600}


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    one = Service()
    yield one
    one.stop()


@pytest.fixture(scope="module")
def scripted(
    tmp_path_factory: pytest.TempPathFactory, template: Path, service: Service
) -> Iterator[Node]:
    place = Node(tmp_path_factory.mktemp("identity"))
    shutil.copy(template, place.data_dir / "node.sqlite3")
    ends = {name: f"{service.url}/{name}" for name in ("authorize", "token", "jwks")}
    config = {
        "issuer": service.url, "clientIds": [AUDIENCE], "back": BACK,
        "introspection": f"{service.url}/introspect", **ends,
    }  # fmt: skip
    script = str(ROOT / "examples" / "connectors" / "identity.js")
    secret = place.data_dir / "secret"
    secret.write_text(BASIC)
    words = ("--script", script, "--config", json.dumps(config), "--origins", service.url)
    place.manage("connectors", "add", "identity", *words, "--secrets", f"basic={service.url}")
    place.manage("connectors", "secret", "identity", "--name", "basic", "--value-file", str(secret))
    place.manage("connectors", "approve", "identity")
    try:
        place.start()
        seen = "SELECT state FROM msgnode_connector"
        waiting.until(lambda: place.rows(seen) == [("live",)], 60.0, place.log)
        yield place
    finally:
        place.kill()


async def execute(client: Client, method: str, **params: object) -> dict[str, Any]:
    answer = await client.ask("execute", IDM, {"method": method, "params": params})
    found: dict[str, Any] = answer["body"]
    return found


@pytest.fixture
async def alice(scripted: Node) -> Any:
    async with scripted.ws() as client:
        await client.open()
        yield client


async def test_case_81_a_log_in_gives_an_identity_that_the_node_verifies(
    alice: Client, scripted: Node, service: Service
) -> None:
    asked = {"contents": "1,2,3", "origin": "o", "idpDomain": "localhost"}
    refused = await execute(alice, "generateAssertion", **asked)
    assert refused["code"] == 401
    url = urlsplit(refused["value"]["loginUrl"])
    assert f"{url.scheme}://{url.netloc}{url.path}" == f"{service.url}/authorize"
    query = {name: values[0] for name, values in parse_qs(url.query).items()}
    assert (query["nonce"], query["client_id"]) == ("1,2,3", AUDIENCE)
    back = f"{BACK}?code=good&state={query['state']}"
    given = await execute(alice, "generateAssertion", **asked, usernameHint=back)
    assert given["code"] == 200
    token = given["value"]["assertion"]
    again = await execute(alice, "generateAssertion", **asked, usernameHint=back)
    assert again["code"] == 401, "a state is good once"
    logged_in = await execute(alice, "login", token=token)
    assert logged_in["code"] == 200
    assert (logged_in["value"]["iss"], logged_in["value"]["sub"]) == (service.url, "sub-alice")


async def test_case_86_an_opaque_token_is_asked_about(alice: Client, service: Service) -> None:
    service.opaque["opaque-7"] = {"sub": "7", "exp": int(time.time()) + 600}
    service.opaque["opaque-8"] = {"sub": "8", "iss": "https://another.example"}
    assert (await execute(alice, "login", token="opaque-8"))["code"] == 401
    assert (await execute(alice, "login", token="nobody's"))["code"] == 401
    assert (await execute(alice, "login", token="opaque-7"))["value"]["sub"] == "7"


async def test_case_78_its_keys_are_good_for_its_own_issuer_only(
    alice: Client, service: Service, make_issuer: Callable[..., Issuer]
) -> None:
    other = make_issuer()
    for claims in ({"iss": other.url}, {"iss": "http://localhost/o"}, {"aud": "another"}):
        answer = await execute(alice, "login", token=service.token(**claims))
        assert answer["code"] == 401, claims
    assert (await execute(alice, "login", token=other.token()))["code"] == 401
    assert (await execute(alice, "login", token=service.token()))["code"] == 200
