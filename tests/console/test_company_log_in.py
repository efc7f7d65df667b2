"""Operators log in with the company's issuer: who gets in, as whom, with which roles; who does not.

The issuer answers over real HTTP and may lie in every part of its answer.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.test import Client

from msgnode import models
from msgnode.console import roles
from msgnode.identity.encryption import encrypt
from msgnode.models import AuditEntry, OperatorIdentity
from tests.issuer import Issuer

pytestmark = pytest.mark.django_db

CLIENT, SECRET = "the-node", "a secret of the node: 7%"


class Company(Issuer):
    """An issuer with the code flow. What it says of a user is in the test's hand."""

    def __init__(self) -> None:
        super().__init__("company.test")
        self.more: dict[str, Any] = {}  # in the discovery document
        self.user_info: dict[str, Any] | None = None
        self.asked_for: dict[str, dict[str, Any]] = {}

    def code(self, location: str, **claims: Any) -> dict[str, str]:
        """What the browser comes back with, after it was sent to a location."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}
        code = f"code-{len(self.asked_for)}"
        said = {"nonce": query["nonce"], "preferred_username": "alice", "groups": [], **claims}
        self.asked_for[code] = {**query, "claims": said}
        return {"code": code, "state": query["state"]}

    def answer_to(self, path: str, form: dict[str, str], headers: Any) -> tuple[int, Any]:
        if path == "/.well-known/openid-configuration":
            document = {
                f"{name}_endpoint": f"{self.url}/{name}" for name in ("authorization", "token")
            }
            info = {"userinfo_endpoint": f"{self.url}/info"} if self.user_info else {}
            jwks = {"issuer": self.url, "jwks_uri": f"{self.url}/jwks"}
            return 200, {**document, **info, **jwks, **self.more}
        if path == "/info":
            assert headers["Authorization"] == "Bearer access"
            return 200, self.user_info
        if path != "/token":
            return super().answer_to(path, form, headers)
        asked = self.asked_for.pop(form["code"], None)
        pair = base64.b64decode(headers["Authorization"].partition(" ")[2]).decode()
        hashed = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(hashed).decode().rstrip("=")
        is_good = asked and challenge == asked["code_challenge"]
        if pair != "the-node:a%20secret%20of%20the%20node%3A%207%25" or not is_good:
            return 400, {"error": "invalid_grant"}
        assert form["redirect_uri"] == asked["redirect_uri"]
        claims = asked["claims"]
        head = {name: claims.pop(name) for name in ("kid", "key", "alg") if name in claims}
        token = self.token(
            claims.pop("user", "alice"), aud=claims.pop("aud", CLIENT), **head, **claims
        )
        return 200, {"access_token": "access", "token_type": "Bearer", "id_token": token}


@pytest.fixture(scope="module")
def company() -> Iterator[Company]:
    made = Company()
    yield made
    made.stop()


@pytest.fixture
def row(company: Company, settings: Any) -> models.Issuer:
    """The issuer as an administrator enters it: two groups have roles here."""
    company.more, company.user_info = {}, None
    settings.PUBLIC_URL = "http://testserver"
    settings.LOGINS_PER_MINUTE = 10_000
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # fast
    row = models.Issuer.objects.create(
        name="The company", url=company.url, client_id=CLIENT, client_secret=encrypt(SECRET),
        domains="company.test",
        logs_in_operators=True,
    )  # fmt: skip
    for group, role in (("node-ops", roles.OPERATOR), ("node-admins", roles.ADMINISTRATOR)):
        row.roles.create(group=group, role=Group.objects.get(name=role))
    return row


@pytest.fixture
def log_in(company: Company, row: models.Issuer) -> Callable[..., Any]:
    def log_in(browser: Client | None = None, answer: Any = None, **claims: Any) -> Any:
        """Log in as somebody of the company; `answer` changes what the browser comes back with."""
        browser = browser or Client()
        gone = browser.get(f"/login/with/{row.pk}/?next=/admin/msgnode/session/")
        assert gone.status_code == 302, gone.content
        back = company.code(gone["Location"], **claims)
        return browser.get(f"/login/with/{row.pk}/back/", {**back, **(answer or {})})

    return log_in


def test_the_log_in_page_offers_it_and_asks_with_state_nonce_and_pkce(
    company: Company, row: models.Issuer
) -> None:
    company.more = {"scopes_supported": ["openid", "groups"]}
    page = Client().get("/admin/login/?next=/admin/msgnode/ban/").content.decode()
    assert f'href="/login/with/{row.pk}/?next=%2Fadmin%2Fmsgnode%2Fban%2F"' in page
    assert "Log in with The company" in page
    assert "The company" not in Client().get("/login/").content.decode()
    asked = [
        parse_qs(urlsplit(Client().get(f"/login/with/{row.pk}/")["Location"]).query) for _ in "12"
    ]
    first, second = asked
    assert first["redirect_uri"] == [f"http://testserver/login/with/{row.pk}/back/"]
    assert first["scope"] == ["openid profile email groups"]
    assert first["code_challenge_method"] == ["S256"]
    for name in ("state", "nonce", "code_challenge"):
        assert len(first[name][0]) >= 32
        assert first[name] != second[name]
    elsewhere = Client().get(f"/login/with/{row.pk}/", headers={"host": "node.lan"})
    assert elsewhere["Location"] == f"http://testserver/login/with/{row.pk}/"


def test_groups_give_roles_and_what_is_lost_there_is_lost_here(log_in: Callable[..., Any]) -> None:
    browser = Client()
    answer = log_in(browser, groups=["node-ops", "others"], name="Alice Liddell")
    assert (answer.status_code, answer["Location"]) == (302, "/admin/msgnode/session/")
    user = User.objects.get()
    assert user.username == "alice@company.test"
    assert (user.email, user.has_usable_password(), user.first_name) == ("", False, "Alice")
    assert [group.name for group in user.groups.all()] == [roles.OPERATOR]
    assert browser.get("/admin/msgnode/session/").status_code == 200
    user.groups.add(Group.objects.get(name=roles.AUTHOR))  # by hand: not the issuer's word
    user.is_superuser = True
    user.save()
    assert log_in(groups=["node-admins"]).status_code == 302
    user.refresh_from_db()
    assert ([group.name for group in user.groups.all()], user.is_superuser) == (
        [roles.ADMINISTRATOR],
        False,
    )
    refused = log_in(groups=["others"])
    assert refused.status_code == 403
    assert "None of your groups at The company has a role here any more" in refused.content.decode()
    user.refresh_from_db()
    assert (user.groups.count(), user.is_staff) == (0, False)
    assert browser.get("/admin/msgnode/session/").status_code == 302, (
        "the other browser is out, too"
    )
    told = set(AuditEntry.objects.filter(actor=user.username).values_list("action", flat=True))
    assert {"user.add", "user.log-in", "user.groups", "operatoridentity.add"} <= told
    assert AuditEntry.objects.filter(action="user.not-let-in").count() == 1


def test_a_secret_that_a_command_has_replaced_is_shown_to_the_issuer(
    row: models.Issuer, log_in: Callable[..., Any], tmp_path: Path
) -> None:
    models.Issuer.objects.update(client_secret=encrypt("the former one"))
    assert log_in(groups=["node-ops"]).status_code != 302
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    how = ("--value-file", str(tmp_path / "secret"))
    call_command("secret", "issuer", row.name, *how, stdout=StringIO())
    assert log_in(groups=["node-ops"]).status_code == 302


def test_who_has_no_role_gets_no_account(log_in: Callable[..., Any]) -> None:
    assert log_in(groups=["others"]).status_code == 403
    assert log_in(groups="node-opsi").status_code == 403
    assert log_in(groups={"node-ops": True}).status_code == 403
    assert not User.objects.exists()


def test_an_account_is_never_found_by_its_name_or_address(log_in: Callable[..., Any]) -> None:
    own = User.objects.create_superuser("alice@company.test", "alice@company.test", "let me in 7")
    assert log_in(groups=["node-ops"], email=own.email, email_verified=True).status_code == 302
    made = OperatorIdentity.objects.get().user
    assert made != own
    assert made.username == "alice@company.test-2"
    own.refresh_from_db()
    assert own.is_superuser
    assert own.has_usable_password()
    log_in(groups=["node-ops"], preferred_username="somebody else")
    assert OperatorIdentity.objects.get().user == made, "the subject counts"
    log_in(user="bob", groups=["node-ops"], preferred_username="<b>bob</b>")
    assert (
        User.objects.filter(username="-b-bob--b-@company.test").exists()
        or User.objects.count() == 3
    )


def test_who_is_switched_off_stays_out(log_in: Callable[..., Any]) -> None:
    log_in(groups=["node-ops"])
    User.objects.update(is_active=False)
    browser = Client()
    refused = log_in(browser, groups=["node-ops"])
    assert "switched off" in refused.content.decode()
    assert browser.get("/admin/").status_code == 302


def test_such_an_account_has_no_other_way_in(log_in: Callable[..., Any]) -> None:
    log_in(groups=["node-ops"])
    user = User.objects.get()
    user.set_password("let me in 7")  # by an administrator, say
    user.save()
    form = {"username": user.username, "password": "let me in 7"}
    browser = Client()
    assert "logs in with The company" in browser.post("/admin/login/", form).content.decode()
    assert browser.get("/admin/").status_code == 302
    pair = base64.b64encode(f"{user.username}:let me in 7".encode()).decode()
    basic = Client().get("/api/v1/status", headers={"Authorization": f"Basic {pair}"})
    assert basic.status_code == 401


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"nonce": "another"}, "not the answer to this log-in"),
        ({"nonce": None}, "not the answer to this log-in"),
        ({"aud": "another-client"}, "another audience"),
        ({"aud": ["the-node", "x"], "azp": "x"}, "another party"),
        ({"iss": "https://evil.example"}, "another issuer"),
        ({"exp": 1}, "expired"),
        ({"sub": None}, "names no subject"),
        ({"kid": "unknown"}, "does not have"),
    ],
)
def test_an_identity_token_that_is_not_for_this_log_in_lets_nobody_in(
    company: Company, log_in: Callable[..., Any], claims: dict[str, Any], why: str
) -> None:
    company.keys["unknown"] = company.keys["k1"]
    refused = log_in(groups=["node-ops"], **claims)
    assert refused.status_code == 403
    assert why in refused.content.decode()
    assert not User.objects.exists()
    assert not AuditEntry.objects.filter(action="user.not-let-in").exists(), "nobody fills the log"


def test_a_token_signed_by_somebody_else_lets_nobody_in(
    company: Company, log_in: Callable[..., Any]
) -> None:
    company.rotate("k2")
    refused = log_in(groups=["node-ops"], kid="k1", key=company.keys["k2"])
    company.published.remove("k2")
    assert "signature is not its issuer" in refused.content.decode()
    assert not User.objects.exists()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"state": "guessed"}, "not begun in this browser"),
        ({"state": "ünsinn"}, "not begun in this browser"),
        ({"iss": "https://evil.example"}, "another issuer"),
        ({"error": "access_denied", "error_description": "<b>no</b>"}, "&lt;b&gt;no&lt;/b&gt;"),
        ({"code": ""}, "no code"),
        ({"code": "guessed"}, "cannot be reached, or does not answer"),
    ],
)
def test_an_answer_that_was_not_asked_for_lets_nobody_in(
    log_in: Callable[..., Any], answer: dict[str, str], why: str
) -> None:
    refused = log_in(answer=answer, groups=["node-ops"])
    assert refused.status_code == 403
    assert why in refused.content.decode()


def test_an_answer_counts_once_and_in_its_own_browser(company: Company, row: models.Issuer) -> None:
    browser, other = Client(), Client()
    back = company.code(browser.get(f"/login/with/{row.pk}/")["Location"], groups=["node-ops"])
    assert other.get(f"/login/with/{row.pk}/back/", back).status_code == 403
    assert browser.get(f"/login/with/{row.pk}/back/", back).status_code == 302
    assert browser.get(f"/login/with/{row.pk}/back/", back).status_code == 403


def test_a_log_in_leads_to_this_node_only(company: Company, row: models.Issuer) -> None:
    for evil in ("https://evil.example/", "//evil.example", "javascript:alert(1)"):
        browser = Client()
        gone = browser.get(f"/login/with/{row.pk}/", {"next": evil})
        back = company.code(gone["Location"], groups=["node-ops"])
        assert browser.get(f"/login/with/{row.pk}/back/", back)["Location"] == "/admin/"


def test_an_issuer_that_names_itself_must_be_named_in_its_answer(
    company: Company, log_in: Callable[..., Any]
) -> None:
    company.more = {"authorization_response_iss_parameter_supported": True}
    assert "does not name its issuer" in log_in(groups=["node-ops"]).content.decode()
    assert log_in(answer={"iss": company.url}, groups=["node-ops"]).status_code == 302


@pytest.mark.parametrize("name", ["token_endpoint", "authorization_endpoint", "userinfo_endpoint"])
def test_what_leads_to_another_host_is_not_followed(
    company: Company, row: models.Issuer, log_in: Callable[..., Any], name: str
) -> None:
    company.more = {name: "http://169.254.169.254/latest"}
    if name == "authorization_endpoint":
        assert Client().get(f"/login/with/{row.pk}/").status_code == 403
    else:
        assert "does not answer as it should" in log_in(groups=["node-ops"]).content.decode()


def test_groups_may_be_in_the_user_info_of_the_same_subject_and_at_a_path(
    company: Company, row: models.Issuer, log_in: Callable[..., Any]
) -> None:
    row.groups_claim = "realm_access.roles"
    row.save()
    company.user_info = {"sub": "sub-alice", "realm_access": {"roles": ["node-ops"]}}
    assert log_in().status_code == 302
    company.user_info = {"sub": "sub-bob", "realm_access": {"roles": ["node-admins"]}}
    assert "somebody else" in log_in().content.decode()


def test_an_issuer_out_of_use_offers_nothing_and_logs_out_whom_it_let_in(
    operator: Client, row: models.Issuer, log_in: Callable[..., Any]
) -> None:
    browser = Client()
    log_in(browser, groups=["node-ops"])
    assert browser.get("/admin/").status_code == 200
    page = operator.get(f"/admin/msgnode/issuer/{row.pk}/change/")
    form = page.context["adminform"].form
    inline = page.context["inline_admin_formsets"][0].formset
    data = {f"{name}": value for name, value in form.initial.items() if value is not None}
    data |= dict.fromkeys(("aliases", "domains", "audiences", "jwks", "secret"), "")
    data |= {f"{inline.prefix}-TOTAL_FORMS": 0, f"{inline.prefix}-INITIAL_FORMS": 0}
    data.pop("logs_in_operators")
    answer = operator.post(f"/admin/msgnode/issuer/{row.pk}/change/", {**data, "audiences": "x"})
    assert answer.status_code == 302, answer.context["adminform"].errors
    assert browser.get("/admin/").status_code == 302
    assert Client().get(f"/login/with/{row.pk}/").status_code == 404
    assert "The company" not in Client().get("/admin/login/").content.decode()


def test_who_has_shown_several_factors_there_is_asked_for_none_here(
    log_in: Callable[..., Any],
) -> None:
    models.RoleAccess.objects.create(
        role=Group.objects.get(name=roles.OPERATOR), needs_second_factor=True
    )
    weak, strong = Client(), Client()
    assert log_in(weak, groups=["node-ops"], amr=["pwd"])["Location"] == "/login/second/"
    assert weak.get("/admin/").status_code == 302
    assert weak.get("/login/second/")["Location"] == "/login/own/"
    assert "Your role asks for a second factor" in weak.get("/login/own/").content.decode()
    assert log_in(strong, groups=["node-ops"], amr=["pwd", "otp", "mfa"]).status_code == 302
    assert strong.get("/admin/").status_code == 200
