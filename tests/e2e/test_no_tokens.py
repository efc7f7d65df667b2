"""Nothing a node writes or shows holds a token, wherever runtimes and programs have put it: what a
run leaves on the disk, says in its log, its metrics, its pages and its tail is searched for all."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import shutil
import sqlite3
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, closing
from pathlib import Path
from urllib.parse import quote, unquote

import pyarrow.parquet as pq
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.client import ALLOCATION, SESSION, SM, Client, address, runtime
from tests.console.browser import Browser, log_in
from tests.e2e.pair import Pair
from tests.issuer import Issuer, enter
from tests.node import Node, eventually

pytestmark = pytest.mark.long

IDM = "domain://idm.localhost"
MODES = {"anonymous": "localhost", "identified": "identified.test", "strict": "strict.test"}
RULES = [
    {
        "id": "S",
        "policies": [
            {
                "id": "P",
                "rules": [
                    {
                        "effect": "deny",
                        "condition": {"actionType": {"equals": "forward"}},
                        "obligations": {"inform": "No forwarding.", "log": "seen"},
                    },
                    {"effect": "permit", "condition": {"actionType": {"equals": "execute"}}},
                ],
            }
        ],
    }
]
PROGRAM = """
import json
from datetime import timedelta
from django.conf import settings
from django.utils import timezone
from django.contrib.auth.models import User
from msgnode.identity import api_keys
from msgnode.identity.provider import grants as provider_grants
from msgnode.identity.ports import AssertionRequest
from msgnode.models import ApiKey
ends = timezone.now() + timedelta(days=1)
key = ApiKey(name="program", scopes=["status:read", "registry:read"], expires_at=ends)
secret = api_keys.issue(key)
key.save()
user = User.objects.create_user("alice", "alice@localhost", "wonderland 7")
request = AssertionRequest(subject=(settings.PROVIDER["ISSUER"], str(user.pk)))
print(json.dumps([secret, provider_grants.access_token(request)["accessToken"]]))
"""
PAGES = [
    *("msgnode/session/", "msgnode/subscription/", "msgnode/allocation/", "msgnode/alarm/"),
    *("msgnode/componentstatus/", "policies/decisionentry/", "axes/accessattempt/"),
    *("admin/logentry/", "registry/hyperty/", "oauth2_provider/accesstoken/", "msgnode/apikey/"),
    "",
]


class Run:
    """A node, all that is said to it, and all that it showed."""

    def __init__(self, nodes: list[Node], issuer: Issuer) -> None:
        self.nodes = nodes
        self.tokens: dict[str, str] = {}
        self.shown: dict[str, str] = {}
        self.browser: Browser = log_in(nodes[0])
        key, access = json.loads(nodes[0].manage("shell", "-c", PROGRAM).splitlines()[-1])
        self.tokens |= {"API key": key, "access token": access, "ID token": issuer.token()}

    @property
    def secrets(self) -> dict[str, str]:
        return self.tokens


@pytest.fixture(params=["one worker", "two workers"])
def run(
    request: pytest.FixtureRequest, tmp_path: Path, template: Path, issuer: Issuer
) -> Iterator[Run]:
    place = tmp_path / "node"
    place.mkdir()
    shutil.copy(template, place / "node.sqlite3")
    enter(place / "node.sqlite3", issuer.row())
    settings = {
        "ADMISSION_DOMAINS": "identified.test=identified,strict.test=strict",
        "POLICY_LOG_SAMPLE": "1",
        "POLICY_LOG_MASKS_BODIES": "false",
        "RECORD_FLUSH_SECONDS": "0.2",
    }
    with contextlib.ExitStack() as stack:
        if request.param == "two workers":
            redis_url = request.getfixturevalue("redis_url")
            both = Pair(place, REDIS_URL=redis_url, **settings)
            stack.callback(both.kill)
            nodes = [both.one, both.other]
        else:
            nodes = [Node(place, **settings)]
            stack.callback(nodes[0].kill)
        rules = tmp_path / "rules.json"
        rules.write_text(json.dumps(RULES))
        nodes[0].manage("policy_import", str(rules), "--mode", "enforce", "--publish")
        for node in nodes:
            node.start()
        yield Run(nodes, issuer)


def forms(token: str) -> list[str]:
    """A token as it may be written in an address."""
    return [token, token.upper(), quote(f"x/{token}", safe=""), token.replace("-", "%2D")]


def places(owner: Client, token: str) -> Iterator[str]:
    """Addresses with a token in them."""
    for form in forms(token):
        yield f"{owner.runtime_url}/{form}"
        yield f"hyperty-{owner.runtime_url}/{form}"
        yield f"{owner.runtime_url}/{form}/sm"
        yield f"{owner.runtime_url}/sm?runtimeToken={form}"
        yield f"{owner.runtime_url}?via={quote(owner.runtime_url, safe='')}%2F{form}"
        yield f"hyperty://localhost/{form}"
        yield f"comm://localhost/x/{form}/changes"
        yield f"domain://registry.localhost/{form}"
        yield f"domain://elsewhere.example/{form}"


async def talk(run: Run, client: Client, peer: Client, token: str) -> None:
    """Say a token in every place of every kind of message."""
    for at in places(client, token):
        body = {"via": at, "value": {"note": token, "accessToken": token, token: 1}}
        for type_ in ("execute", "forward", "create", "update", "subscribe", "response"):
            await client.send(type_, at, body)
            await client.send(type_, peer.runtime_url, body, sender=at)
            await client.send(type_, [at, peer.runtime_url], body)
        await client.send("execute", peer.runtime_url, body, id=at)
        await client.send("subscribe", SM, {"resources": [at], "source": at})
        await client.send("subscribe", SM, {"resource": at, "childrenResources": ["x"]})
        await client.send("create", ALLOCATION, {"scheme": at, "value": {"number": 1}})
        await client.send("create", "domain://registry.localhost", {"value": {"url": at}})
        await client.send("read", "domain://registry.localhost", {"resource": at})
        await client.send("execute", IDM, {"method": at, "params": {"token": token}})
        await client.send_raw(json.dumps({"id": at, "type": at, "from": at, "to": at}))
        await client.send_raw(json.dumps({"type": "create", "from": at, "to": [at, 7]}))
        await client.settled()
        await peer.settled()


async def knock(run: Run, node: Node, token: str) -> None:
    """Sockets and requests with a token in their URL and headers."""
    root = f"127.0.0.1:{node.port}"
    named = [f"token={token}", f"access_token={token}", f"runtimeURL={quote(runtime())}%2F{token}"]
    for query in named:
        for path in ("/ws", "/stub/connect", f"/nowhere/{token}"):
            with contextlib.suppress(InvalidStatus, ConnectionClosed):
                async with Client(f"ws://{root}{path}?{query}") as client:
                    await client.send("open", SESSION, sender=f"{runtime()}/{token}")
                    await client.receive()
    for options in (
        {"additional_headers": {"Authorization": f"Bearer {token}"}},
        {"subprotocols": [f"bearer.{token}"]},
        {"additional_headers": {"Cookie": f"sessionid={token}", "Origin": f"https://{token}"}},
    ):
        with contextlib.suppress(InvalidStatus, ConnectionClosed):
            async with AsyncExitStack() as stack:
                client = await Client(f"ws://{root}/ws").connect(**options)
                stack.push_async_callback(client.hang_up)
                await client.send("open", SESSION, sender=runtime())
                await client.receive()
    for path in (
        f"/{token}", f"/api/v1/hyperties/{token}", f"/api/v1/status?api_key={token}",
        f"/domain-registry/hyperty/url/{quote(f'hyperty://d/{token}', safe='')}",
        f"/o/authorize/?client_id=x&id_token_hint={token}&prompt=none", f"/o/userinfo/?x={token}",
        f"/admin/msgnode/session/?q={token}", f"/health/{token}",
    ):  # fmt: skip
        await asyncio.to_thread(ask, f"http://{root}{path}", token)
    for path in ("/admin/login/", "/login/", "/o/token/", "/o/introspect/", "/o/revoke_token/"):
        form = f"username={token}x&password={token}&token={token}&code={token}&client_id=x".encode()
        await asyncio.to_thread(ask, f"http://{root}{path}?access_token={token}", token, form)


def ask(url: str, token: str, form: bytes | None = None) -> None:
    request = urllib.request.Request(url, form)  # noqa: S310 (http:, above)
    request.add_header("Authorization", f"Bearer {token}")
    request.add_header("User-Agent", "program")
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310
            answer.read()
    except urllib.error.HTTPError as refused:
        refused.close()  # it holds the socket


@contextlib.asynccontextmanager
async def followed(run: Run) -> AsyncIterator[None]:
    """Somebody follows the messages meanwhile, bodies included."""
    lines: list[bytes] = []
    folder = run.nodes[0].data_dir
    tasks = []
    for path in folder.glob("tail-*.sock"):
        reader, writer = await asyncio.open_unix_connection(path, limit=1 << 24)
        asked = {"token": (folder / "tail.token").read_text(), "bodies": True}
        writer.write(json.dumps(asked).encode() + b"\n")

        async def read(reader: asyncio.StreamReader = reader) -> None:
            while line := await reader.readline():
                lines.append(line)

        tasks.append(asyncio.create_task(read()))
    yield
    for task in tasks:
        task.cancel()
    assert len(lines) > 100
    run.shown["tail"] = b"".join(lines).decode()


def kept(folder: Path) -> Iterator[tuple[str, str]]:
    """Every file as text: tables row by row, and each file as it is."""
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        if not path.exists():  # a database's, closed since
            continue
        if path.suffix == ".parquet":
            yield str(path), repr(pq.read_table(path).to_pylist())
        if path.suffix == ".sqlite3":
            with closing(sqlite3.connect(path)) as connection:
                for line in connection.iterdump():
                    yield f"{path.name}: {line[:80]}", line
        yield str(path), path.read_bytes().decode("latin-1")


def found(secrets: dict[str, str], name: str, text: str) -> list[str]:
    """What of the secrets stands in a text, in whatever form."""
    plain = text.lower()
    for _ in range(3):
        plain = unquote(plain)
    faults = []
    for kind, token in secrets.items():
        at = plain.find(token.lower())
        if at >= 0:
            faults.append(f"{kind} in {name}: …{plain[max(0, at - 160) : at + 60]!r}")
    return faults


async def test_no_token_is_in_anything_a_run_has_written_or_shown(run: Run, issuer: Issuer) -> None:
    first, last = run.nodes[0], run.nodes[-1]
    async with AsyncExitStack() as stack, followed(run):
        for mode, domain in MODES.items():
            clients = []
            for node in (first, last):
                client = await stack.enter_async_context(node.ws())
                await client.open(runtime().replace("localhost", domain))
                run.tokens[f"session token, {mode} {len(clients)}"] = client.token
                clients.append(client)
            speaker, peer = clients
            if mode != "anonymous":
                token = issuer.token(f"u{runtime()[-8:]}")
                run.tokens[f"login, {mode}"] = token
                await speaker.ask("execute", IDM, {"method": "login", "params": {"token": token}})
            tokens = [speaker.token, peer.token]
            if mode == "anonymous":
                tokens += [run.tokens["access token"], run.tokens["API key"]]
                tokens += [run.tokens["ID token"]]
                wrapped = json.dumps({"tokenID": run.tokens["ID token"]}).encode()
                run.tokens["assertion"] = base64.b64encode(wrapped).decode().rstrip("=")
                tokens.append(run.tokens["assertion"])
            for token in tokens:
                await talk(run, speaker, peer, token)
            await speaker.subscribe(f"{address('comm')}/changes")
            speaker.cut()
            back = await stack.enter_async_context(last.ws())
            await back.reopen(speaker.runtime_url, speaker.token)
        for token in list(run.tokens.values()):
            await knock(run, first, token)
        await eventually(1)
    for number, node in enumerate(run.nodes):
        run.shown[f"metrics {number}"] = node.text("/metrics")
    for page in PAGES:
        with contextlib.suppress(urllib.error.HTTPError):
            run.shown[f"page {page}"] = await run.browser.get(page)
    assert len(run.shown) > 8
    for node in run.nodes:
        node.terminate()
        assert node.status() == 0, node.log()
    faults = [fault for each in run.shown.items() for fault in found(run.secrets, *each)]
    rows = 0
    for name, text in kept(first.data_dir):
        rows += text.count("outcome") if name.endswith(".parquet") else 0
        faults += found(run.secrets, name, text)
    assert rows > 100, "the record is empty"
    assert not faults, f"{len(faults)}:\n" + "\n".join(faults[:40])
