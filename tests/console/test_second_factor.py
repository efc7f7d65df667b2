"""Second factors of local accounts: asked for, counted once, locked, set up, removed, required."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.contrib.sessions.models import Session as BrowserSession
from django.core.management import call_command
from django.test import Client

from msgnode.console import own_log_in, roles
from msgnode.core.digest import digest
from msgnode.identity import second_factor
from msgnode.models import AuditEntry, RoleAccess, SecondFactor
from tests.fakes import Clock

pytestmark = pytest.mark.django_db

PASSWORD = "let me in 7"
START = 1_800_000_000.0


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Clock:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # fast
    clock = Clock(START)
    monkeypatch.setattr(second_factor, "time", lambda: clock.now)
    return clock


@pytest.fixture
def alice(clock: Clock) -> User:
    user = User.objects.create_user("alice", password=PASSWORD)
    user.groups.add(Group.objects.get(name=roles.ADMINISTRATOR))
    return User.objects.get(pk=user.pk)


def password(browser: Client, name: str = "alice", **form: str) -> Any:
    return browser.post("/admin/login/", {"username": name, "password": PASSWORD, **form})


def secret_of(page: Any) -> str:
    found = re.search(r'id="secret">([A-Z2-7 ]+)<', page.content.decode())
    assert found
    return found[1].replace(" ", "")


def with_app(user: User, browser: Client | None = None) -> tuple[Client, str, list[str]]:
    """A browser in which somebody has set up an app; its secret, and the recovery codes."""
    browser = browser or Client()
    assert password(browser, user.username).status_code == 302
    secret = secret_of(browser.get("/login/own/app/"))
    page = browser.post("/login/own/app/", {"code": code(secret), "name": "phone"})
    codes = re.findall(r"[A-Z2-7]{4}(?:-[A-Z2-7]{4}){3}", page.content.decode())
    assert len(codes) == second_factor.RECOVERY_CODES
    return browser, secret, codes


def code(secret: str, later: int = 0) -> str:
    """The code of an app, `later` steps of half a minute from now."""
    return second_factor._code(secret, int(START // 30) + later)


def is_in(browser: Client) -> bool:
    return browser.get("/admin/").status_code == 200


def test_codes_are_those_of_rfc_6238() -> None:
    secret = base64.b32encode(b"12345678901234567890").decode()
    assert second_factor._code(secret, 59 // 30) == "287082"
    assert second_factor._code(secret, 1_111_111_109 // 30) == "081804"


def test_the_password_alone_lets_nobody_in_who_has_set_up_an_app(alice: User) -> None:
    _, secret, _ = with_app(alice)
    sealed = SecondFactor.objects.get(kind="codes").sealed
    assert secret not in sealed
    for door in ("/admin/login/", "/login/"):
        browser = Client()
        form = {"username": "alice", "password": PASSWORD, "next": "/admin/msgnode/ban/"}
        assert browser.post(door, form)["Location"] == "/login/second/"
        assert not is_in(browser)
        page = browser.post("/login/second/", {"code": "000000"})
        assert "This code is not right" in page.content.decode()
        assert not is_in(browser)
    answer = browser.post("/login/second/", {"code": f" {code(secret, 1)} "})
    assert answer["Location"] == "/admin/msgnode/ban/"
    assert is_in(browser)
    entry = AuditEntry.objects.filter(action="user.log-in").first()
    assert entry is not None
    assert entry.after["by"] == "password"
    assert AuditEntry.objects.filter(action="second-factor.failed", actor="alice").count() == 2


def test_a_code_counts_once_and_for_its_time(alice: User, clock: Clock) -> None:
    _, secret, _ = with_app(alice)
    first, second = Client(), Client()
    for browser in (first, second):
        password(browser)
    assert "used already" in first.post("/login/second/", {"code": code(secret)}).content.decode()
    assert first.post("/login/second/", {"code": code(secret, 1)}).status_code == 302
    page = second.post("/login/second/", {"code": code(secret, 1)})
    assert "used already" in page.content.decode()
    clock.now += 300
    page = second.post("/login/second/", {"code": code(secret, 2)})
    assert "not right" in page.content.decode()
    assert second.post("/login/second/", {"code": code(secret, 10)}).status_code == 302


def test_a_recovery_code_counts_once_and_is_its_owners(alice: User) -> None:
    _, _, codes = with_app(alice)
    bob = User.objects.create_superuser("bob", password=PASSWORD)
    _, _, of_bob = with_app(bob)
    browser = Client()
    password(browser)
    assert "neither" in browser.post("/login/second/", {"code": of_bob[0]}).content.decode()
    assert browser.post("/login/second/", {"code": codes[0].lower()}).status_code == 302
    assert is_in(browser)
    entry = AuditEntry.objects.get(action="second-factor.recovery")
    assert entry.after == {"left": second_factor.RECOVERY_CODES - 1}
    other = Client()
    password(other)
    assert "neither" in other.post("/login/second/", {"code": codes[0]}).content.decode()


def test_who_guesses_codes_is_locked_out_like_who_guesses_passwords(
    alice: User, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.AXES_FAILURE_LIMIT = 3
    monkeypatch.setattr(second_factor, "PER_MINUTE", 100)
    _, secret, _ = with_app(alice)
    browser = Client(REMOTE_ADDR="192.0.2.7")
    password(browser)
    codes = [browser.post("/login/second/", {"code": "000000"}).status_code for _ in range(4)]
    assert codes[0] == 200
    assert codes[-1] == 429
    assert browser.post("/login/second/", {"code": code(secret, 1)}).status_code == 429
    assert password(Client(REMOTE_ADDR="192.0.2.7")).status_code == 429
    elsewhere = Client(REMOTE_ADDR="192.0.2.8")
    password(elsewhere)
    assert elsewhere.post("/login/second/", {"code": code(secret, 1)}).status_code == 302


def test_an_account_has_so_many_wrong_codes_a_minute_from_all_addresses(alice: User) -> None:
    _, secret, _ = with_app(alice)
    for number in range(second_factor.PER_MINUTE + 1):
        browser = Client(REMOTE_ADDR=f"192.0.2.{number + 1}")
        password(browser)
        page = browser.post("/login/second/", {"code": "000000"})
    assert page.status_code == 429
    assert "Wait a minute" in page.content.decode()
    assert browser.post("/login/second/", {"code": code(secret, 1)}).status_code == 429


def test_the_first_step_is_forgotten_after_minutes_or_with_a_new_password(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    from msgnode.identity.provider import login

    _, secret, _ = with_app(alice)
    late, changed = Client(), Client()
    password(late)
    password(changed)
    now = login.time()
    with monkeypatch.context() as patch:
        patch.setattr(login, "time", lambda: now + 301)
        answer = late.post("/login/second/", {"code": code(secret, 1)})
        assert answer["Location"] == "/admin/login/"
    alice.set_password("another 7")
    alice.save()
    assert changed.post("/login/second/", {"code": code(secret, 1)})["Location"] == "/admin/login/"
    assert not is_in(late)
    assert not is_in(changed)


def test_a_password_over_http_does_not_go_round_it(alice: User) -> None:
    pair = base64.b64encode(f"alice:{PASSWORD}".encode()).decode()
    header = {"Authorization": f"Basic {pair}"}
    assert Client().get("/api/v1/status", headers=header).status_code == 200
    with_app(alice)
    refused = Client().get("/api/v1/status", headers=header)
    assert refused.status_code == 401
    assert "API key" in refused.content.decode()


def test_a_role_asks_for_one_and_it_is_set_up_before_the_log_in(alice: User) -> None:
    admin = Group.objects.get(name=roles.ADMINISTRATOR)
    RoleAccess.objects.create(role=admin, needs_second_factor=True)
    root = User.objects.create_superuser("root", password=PASSWORD)
    viewer = User.objects.create_user("viewer", password=PASSWORD)
    viewer.groups.add(Group.objects.get(name=roles.VIEWER))
    assert password(Client(), "viewer")["Location"] == "/admin/"
    for user in (alice, root):
        browser = Client()
        assert password(browser, user.username)["Location"] == "/login/second/"
        assert browser.get("/login/second/")["Location"] == "/login/own/"
        page = browser.get("/login/own/").content.decode()
        assert "Set one up to go on" in page
        assert "Browsers logged in" not in page
        assert not is_in(browser)
        secret = secret_of(browser.get("/login/own/app/"))
        page = browser.post("/login/own/app/", {"code": code(secret)})
        assert 'href="/admin/"' in page.content.decode()
        assert is_in(browser)
        assert AuditEntry.objects.filter(action="second-factor.add", actor=user.username).exists()
        row = SecondFactor.objects.get(user=user, kind="codes")
        refused = browser.post("/login/own/remove/", {"factor": row.pk})
        assert refused.status_code == 409
        assert SecondFactor.objects.filter(pk=row.pk).exists()


def test_who_has_one_cannot_set_up_another_with_the_password_alone(alice: User) -> None:
    with_app(alice)
    thief = Client()
    password(thief)
    for page in ("/login/own/", "/login/own/app/", "/login/own/passkey/"):
        assert thief.get(page)["Location"].startswith("/login/?next=")
    thief.post("/login/own/codes/")
    thief.post("/login/own/remove/", {"factor": SecondFactor.objects.get(kind="codes").pk})
    assert SecondFactor.objects.filter(user=alice, kind="codes").exists()


def test_changing_a_factor_asks_again_after_minutes(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    from msgnode.identity.provider import login

    browser, secret, _ = with_app(alice)
    assert browser.get("/login/own/app/").status_code == 200
    now = login.time()
    monkeypatch.setattr(login, "time", lambda: now + 601)
    asked = browser.get("/login/own/app/")
    assert asked["Location"] == "/login/confirm/?next=%2Flogin%2Fown%2F"
    row = SecondFactor.objects.get(kind="codes")
    browser.post("/login/own/remove/", {"factor": row.pk})
    assert SecondFactor.objects.filter(pk=row.pk).exists()
    monkeypatch.setattr(login, "time", lambda: now)
    answer = browser.post(asked["Location"], {"code": code(secret, 1)})
    assert answer["Location"] == "/login/own/"
    browser.post("/login/own/remove/", {"factor": row.pk})
    assert not SecondFactor.objects.exists(), "recovery codes go with the last factor"
    assert AuditEntry.objects.filter(action="second-factor.remove").count() == 1


def test_who_has_none_shows_the_password_again(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    from msgnode.identity.provider import login

    browser = Client()
    password(browser)
    now = login.time()
    monkeypatch.setattr(login, "time", lambda: now + 601)
    url = browser.get("/login/own/app/")["Location"]
    assert "not the password" in browser.post(url, {"password": "wrong"}).content.decode()
    monkeypatch.setattr(login, "time", lambda: now)
    assert browser.post(url, {"password": PASSWORD})["Location"] == "/login/own/"
    evil = browser.post("/login/confirm/?next=https://evil.example/", {"password": PASSWORD})
    assert evil["Location"] == "/admin/"


def test_a_lost_factor_is_removed_by_an_administrator_or_from_a_shell(
    alice: User, operator: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    browser, _, _ = with_app(alice)
    call_command("second_factor", "alice")
    assert "codes: phone" in capsys.readouterr().out
    form = {"action": "remove_factors", "_selected_action": [alice.pk]}
    operator.post("/admin/auth/user/", form)
    assert not SecondFactor.objects.exists()
    assert not is_in(browser)
    with_app(alice)
    call_command("second_factor", "alice", "--remove")
    assert "11 removed" in capsys.readouterr().out
    assert password(Client())["Location"] == "/admin/"
    assert AuditEntry.objects.filter(action="second-factor.remove-all").count() == 2


def test_browsers_are_listed_without_their_keys_and_ended_one_by_one(
    alice: User, operator: Client
) -> None:
    here, there = Client(), Client(headers={"User-Agent": "Firefox on <a train>"})
    password(here)
    password(there)
    key = there.session.session_key
    page = here.get("/login/own/")
    text = page.content.decode()
    assert "Firefox on &lt;a train&gt;" in text
    assert "from 127.0.0.1 by password" in text
    assert key not in text
    (other,) = [each for each in page.context["browsers"] if not each["is_own"]]
    User.objects.create_superuser("bob", password=PASSWORD)
    bob = Client()
    password(bob, "bob")
    bob.post("/login/own/end/", {"log_in": other["id"]})
    assert is_in(there), "only its owner ends it here"
    here.post("/login/own/end/", {"log_in": other["id"]})
    assert not is_in(there)
    assert is_in(here)
    listed = operator.get("/admin/log-ins/").context["log_ins"]
    (mine,) = [each for each in listed if each["user"] == alice]
    operator.post("/admin/log-ins/", {"log_in": mine["id"], "user": alice.pk})
    assert not is_in(here)
    actors = AuditEntry.objects.filter(action="log-in.end").values_list("actor", flat=True)
    assert sorted(actors) == ["alice", "operator"]


def test_ending_a_log_in_reads_no_content_of_another(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = Client(), Client()
    password(here)
    password(there)
    for _ in range(5):
        password(Client())
    key = there.session.session_key
    decoded: list[str] = []
    decode = BrowserSession.get_decoded

    def counted(row: BrowserSession) -> dict[str, Any]:
        decoded.append(row.session_key)
        return decode(row)

    monkeypatch.setattr(BrowserSession, "get_decoded", counted)
    assert not own_log_in.end_log_in("of none", alice, "alice")
    assert own_log_in.end_log_in(digest(key), alice, "alice")
    assert decoded == [key]
    assert not is_in(there)
    assert is_in(here)


def test_the_list_of_log_ins_says_when_it_is_cut(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "were looked through" not in operator.get("/admin/log-ins/").content.decode()
    monkeypatch.setattr(own_log_in, "READ", 0)
    page = operator.get("/admin/log-ins/")
    assert "were looked through" in page.content.decode()
    assert page.context["log_ins"] == []


def test_an_administrator_does_not_end_the_log_in_of_a_superuser(
    alice: User, operator: Client
) -> None:
    browser = Client()
    password(browser)
    listed = browser.get("/admin/log-ins/").context["log_ins"]
    (row,) = [each for each in listed if each["user"].is_superuser]
    browser.post("/admin/log-ins/", {"log_in": row["id"], "user": row["user"].pk})
    assert is_in(operator)


def test_users_of_the_domain_have_them_too(alice: User) -> None:
    User.objects.create_user("carol", password=PASSWORD)
    browser = Client()
    form = {"username": "carol", "password": PASSWORD, "next": "/"}
    browser.post("/login/", form)
    secret = secret_of(browser.get("/login/own/app/"))
    browser.post("/login/own/app/", {"code": code(secret)})
    again = Client()
    assert again.post("/login/", form)["Location"] == "/login/second/"
    assert again.post("/login/second/", {"code": code(secret, 1)})["Location"] == "/"


def test_a_passkey_that_is_made_up_is_refused(alice: User) -> None:
    browser = Client(headers={"host": "localhost"})
    password(browser)
    assert "data-passkey-offer" in browser.get("/login/own/passkey/").content.decode()
    for answer in ("", "{}", "[]", "null", '{"id": "x", "response": {}}', "{" * 5_000):
        browser.get("/login/own/passkey/")
        page = browser.post("/login/own/passkey/", {"passkey": answer})
        assert "not accepted" in page.content.decode()
    anybody = Client(headers={"host": "localhost"})
    assert anybody.post("/login/passkey/", {"passkey": "{}"}).status_code == 403
    assert anybody.post("/login/passkey/question/").json()["publicKey"]["rpId"] == "localhost"
    assert anybody.post("/login/passkey/", {"passkey": '{"id": "x"}'}).status_code == 403
    by_address = Client(headers={"host": "127.0.0.1"})
    assert by_address.post("/login/passkey/question/").status_code == 404
    assert "passkey" not in by_address.get("/admin/login/").content.decode()
