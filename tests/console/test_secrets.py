"""`manage.py secret`: a secret is replaced while the node runs, and no output has one twice."""

from __future__ import annotations

import base64
import json
import re
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client
from django.utils import timezone
from oauth2_provider.models import Application

from msgnode.console.actor import acting_as
from msgnode.federation import store
from msgnode.identity import issuer_store
from msgnode.identity.encryption import decrypt, encrypt
from msgnode.models import (
    AuditEntry,
    ControlMessage,
    FormerClientSecret,
    Issuer,
    LegacyNetwork,
    Peer,
)
from msgnode.qos import turn_state
from tests.console.test_edited_lists import as_posted
from tests.qos import rows as qos_rows

pytestmark = pytest.mark.django_db
OLD, NEW = "the former one", "the other one: 7%"


@pytest.fixture(autouse=True)
def _fast(settings: Any) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def new(tmp_path: Path) -> tuple[str, str]:
    """The option with a file that has the new secret, as an editor leaves it."""
    file = tmp_path / "new secret"
    file.write_text(f"{NEW}\n")
    return "--value-file", str(file)


@pytest.fixture
def client() -> Application:
    """A client of the provider that has a secret."""
    return Application.objects.create(
        client_id="server", name="The shop", client_secret=OLD, client_type="confidential",
        authorization_grant_type="authorization-code", algorithm="RS256",
        redirect_uris="https://shop.example.org/back",
    )  # fmt: skip


@pytest.fixture
def network() -> LegacyNetwork:
    return LegacyNetwork.objects.create(
        domain="legacy.example", host="127.0.0.1", port=5347, component="gw.legacy.example",
        sealed=encrypt(OLD), decision=Peer.Decision.APPROVED,
    )  # fmt: skip


def ran(*words: str) -> str:
    out = StringIO()
    with acting_as("manage.py secret"):
        call_command("secret", *words, stdout=out)
    return out.getvalue().strip()


def introspects(secret: str) -> int:
    """The status that the client is answered with a secret, by each way that it can show it."""
    pair = base64.b64encode(f"server:{secret}".encode()).decode()
    basic = Client().post(
        "/o/introspect/", {"token": "x"}, headers={"Authorization": f"Basic {pair}"}
    )
    form = {"token": "x", "client_id": "server", "client_secret": secret}
    assert Client().post("/o/introspect/", form).status_code == basic.status_code
    return int(basic.status_code)


@pytest.mark.usefixtures("client")
def test_a_client_of_the_provider_has_two_secrets_for_a_day() -> None:
    assert introspects(OLD) == 200
    second = ran("client", "server", "--rotate")
    assert (introspects(OLD), introspects(second), introspects("a guess")) == (200, 200, 403)
    third = ran("client", "server", "--rotate")
    assert len({OLD, second, third}) == 3
    assert (introspects(second), introspects(third)) == (200, 200)
    assert introspects(OLD) == 403, "no more than two count"
    FormerClientSecret.objects.update(valid_until=timezone.now() - timedelta(seconds=1))
    assert (introspects(second), introspects(third)) == (403, 200)
    kept = [*Application.objects.values(), *FormerClientSecret.objects.values()]
    assert not [secret for secret in (OLD, second, third) if secret in str(kept)]


def test_an_operator_gives_a_client_a_new_secret_on_its_page(
    client: Application, operator: Client
) -> None:
    page = f"/admin/oauth2_provider/application/{client.pk}/"
    shown = operator.get(f"{page}change/").content.decode()
    assert f"{page}rotate/" in shown
    assert "Toolkit" not in shown, "no name of a library is an operator's word"
    form = as_posted(operator.get(f"{page}rotate/").content.decode())
    assert introspects(OLD) == 200, "asking changes nothing"
    told = operator.post(f"{page}rotate/", form, follow=True).content.decode()
    found = re.search(r"Client server, secret (\w+) \(shown only this once\)", told)
    assert found is not None
    assert (introspects(OLD), introspects(found[1])) == (200, 200)
    entry = AuditEntry.objects.get(action="application.change", actor="operator")
    assert entry.after["client_secret"] == "••• (new)"
    assert found[1] not in str(list(AuditEntry.objects.values()))
    assert found[1] not in operator.get(f"{page}change/").content.decode()
    again = operator.post(f"{page}rotate/", form, follow=True).content.decode()
    assert "Changed since you opened the page" in again
    assert (introspects(OLD), introspects(found[1])) == (200, 200), "a colleague's page ends none"


def test_what_has_no_secret_is_offered_none(client: Application, operator: Client) -> None:
    page = f"/admin/oauth2_provider/application/{client.pk}/"
    Application.objects.update(client_type="public")
    assert "rotate/" not in operator.get(f"{page}change/").content.decode()
    assert operator.post(f"{page}rotate/").status_code == 403
    assert not FormerClientSecret.objects.exists()


def test_the_former_secret_of_a_client_is_of_no_use_to_another(client: Application) -> None:
    ran("client", "server", "--rotate")
    client.pk, client.client_id, client.client_secret = None, "other", "of the other"
    client.save(force_insert=True)
    pair = base64.b64encode(f"other:{OLD}".encode()).decode()
    headers = {"Authorization": f"Basic {pair}"}
    assert Client().post("/o/introspect/", {"token": "x"}, headers=headers).status_code == 403


def test_workers_connect_to_a_legacy_network_anew(
    network: LegacyNetwork, new: tuple[str, str]
) -> None:
    (before,) = store.read()
    LegacyNetwork.objects.update(state="live")  # as a worker has written meanwhile
    assert NEW not in ran("legacy-network", "legacy.example", *new)
    (after,) = store.read()
    assert after.legacy is not None
    assert decrypt(after.legacy.sealed) == NEW
    assert not before.has_place_of(after)
    assert ControlMessage.objects.filter(kind=store.CHANGED).exists()
    network.refresh_from_db()
    assert network.state == "live"


def test_a_turn_server_is_visited_with_the_new_password(new: tuple[str, str]) -> None:
    for name in ("turn1", "turn2"):
        qos_rows.server(name, sealed_password=encrypt(OLD))
    ran("turn-server", "turn1", *new)
    passwords = {visit.name: visit.password for visit in turn_state.visits([])}
    assert passwords == {"turn1": NEW, "turn2": OLD}


def test_workers_show_an_issuer_the_new_secret(new: tuple[str, str]) -> None:
    Issuer.objects.create(name="Company", url="https://c", client_secret=encrypt(OLD))
    ran("issuer", "Company", *new)
    (book, _) = issuer_store.read()
    found = book.named("https://c")
    assert found is not None
    assert found.client_secret == NEW
    assert ControlMessage.objects.filter(kind="issuers.changed").exists()


def test_the_audit_log_has_the_change_and_no_secret(
    client: Application, network: LegacyNetwork, new: tuple[str, str]
) -> None:
    shown = ran("client", "server", "--rotate")
    ran("legacy-network", "legacy.example", *new)
    found = AuditEntry.objects.filter(actor="manage.py secret")
    told = dict(found.values_list("action", "after"))
    assert told["application.change"]["client_secret"] == "••• (new)"
    assert told["legacynetwork.change"]["sealed"] == "••• (new)"
    assert shown not in str(told)
    assert NEW not in str(told)


def test_where_none_is_the_list_says_so() -> None:
    assert ran() == "Nothing here has a secret."
    assert ran("turn-server") == "There is no turn-server."
    assert ran("--json") == "[]"


@pytest.mark.usefixtures("client", "network")
def test_they_are_listed_without_being_shown() -> None:
    qos_rows.server("turn1")
    Issuer.objects.create(name="Company", url="https://c", client_secret=encrypt(OLD))
    ran("client", "server", "--rotate")
    lines = [line.split() for line in ran().splitlines()]
    assert [line[:3] for line in lines] == [
        ["issuer", "set", "Company"], ["legacy-network", "set", "legacy.example"],
        ["turn-server", "none", "turn1"], ["client", "set", "server"],
    ]  # fmt: skip
    told = json.loads(ran("client", "--json"))
    assert [sorted(each) for each in told] == [["former_valid_until", "is_set", "kind", "name"]]
    assert told[0]["former_valid_until"]


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (("client", "server"), "give --rotate"),
        (("issuer", "nobody"), "There is no issuer nobody"),
        (("legacy-network", "script.example"), "connectors secret legacy"),
        (("turn-server",), "Which one"),
        ((), "Which one"),
    ],
)
@pytest.mark.usefixtures("client")
def test_what_cannot_be_replaced_is_said(
    new: tuple[str, str], words: tuple[str, ...], fault: str
) -> None:
    LegacyNetwork.objects.create(domain="script.example", network="script", host="", port=1)
    with pytest.raises(CommandError, match=fault) as refused:
        ran(*words, *new)
    assert refused.value.returncode == 2
    assert introspects(OLD) == 200


def test_what_no_server_here_makes_is_not_rotated() -> None:
    qos_rows.server("turn1", sealed_password=encrypt(OLD))
    with pytest.raises(CommandError, match="give it with --value-file"):
        ran("turn-server", "turn1", "--rotate")
    with pytest.raises(CommandError, match="There is no client newcomer"):
        ran("client", "newcomer", "--rotate")  # it is public


@pytest.mark.parametrize("content", [b"", b"\n", b"a\nb", b"a\x00b", b"\xff", b"x" * 501])
def test_a_file_without_one_secret_replaces_nothing(
    tmp_path: Path, network: LegacyNetwork, content: bytes
) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(CommandError, match="--value-file"):
        ran("legacy-network", "legacy.example", "--value-file", str(tmp_path / "file"))
    network.refresh_from_db()
    assert decrypt(network.sealed) == OLD
