"""Every page and action of the console asks for a right, and each role has the rights it should.

The pages are taken from the URLs themselves: one that is added without a line here fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from msgnode.console import roles
from msgnode.models import Issuer, Session
from msgnode.site_urls import CONSOLE

pytestmark = pytest.mark.django_db

SHORT = (roles.VIEWER, "")
"""Those that the short run visits every page as."""
ROLES = (roles.VIEWER, roles.OPERATOR, roles.AUTHOR, roles.ADMINISTRATOR, "")

# Pages that are no list, form or history, and the right each asks for.
PAGES = {
    "policies_check_typed": "policies.view_policyset",
    "policies_say_typed": "policies.view_policyset",
    "policies_try_typed": "policies.view_policyset",
    "policies_import": "policies.add_policyset",
    "policies_export": "policies.view_policyset",
    "policies_replay": "policies.view_policyset",
    "policies_shadow": "policies.view_policyset",
    "policies_playground": "policies.view_policyset",
    "policies_publish": "policies.view_version",
    "policies_rule_force": "policies.add_version",
    "policies_roll_back": "policies.add_version",
    "spark_last_day": "spark.view_report",
    "msgnode_auditentry_take_back": "msgnode.view_auditentry",
    "spark_roll_up_now": "spark.add_reportrun",
    "msgnode_alarmrule_send_test": "msgnode.change_alarmrule",
    "msgnode_alarmrule_silence": "msgnode.change_alarmrule",
    "msgnode_session_end_one": "msgnode.change_session",
    "msgnode_session_ban_for_an_hour": "msgnode.add_ban",
    "msgnode_session_ban_runtime": "msgnode.add_ban",
    "msgnode_session_ban_domain": "msgnode.add_ban",
    "msgnode_session_subscribe_for": "msgnode.add_subscription",
    "msgnode_worker_even_out": "msgnode.change_session",
    "msgnode_worker_drain_one": "msgnode.change_session",
    "msgnode_apikey_rotate": "msgnode.change_apikey",
    "oauth2_provider_application_rotate": "oauth2_provider.change_application",
    "auth_user_password_change": "auth.change_user",
}
POSTED = frozenset(
    {"policies_roll_back", *(f"policies_{act}_typed" for act in ("check", "say", "try"))}
)
# Actions of lists that lead to one of the pages above, which asks.
LEAD_ON = frozenset(
    f"policies_{model}_{act}"
    for model in ("policyset", "policy", "rule", "namedlist", "policytest", "version")
    for act in ("publish", "try_out", "bring", "take", "build")
)
# For every operator: the first page, his own password, the way out, texts, the menu's search.
FOR_ALL = frozenset(
    {
        *("index", "login", "logout", "password_change", "password_change_done", "jsi18n"),
        *("autocomplete", "app_list", "view_on_site", "search"),
    }
)
VERBS = {
    "changelist": "view",
    "add": "add",
    "history": "view",
    "delete": "delete",
    "change": "view",
}


def patterns(found: Any = None, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Name and path of every page of the console."""
    for each in CONSOLE.get_urls() if found is None else found:
        path = prefix + str(each.pattern)
        if isinstance(each, URLResolver):
            yield from patterns(each.url_patterns, path)
        elif isinstance(each, URLPattern) and each.name:
            yield each.name, path


def right_of(name: str) -> str:
    """The right a page asks for; fails for a page that nobody has thought of."""
    if name in PAGES:
        return PAGES[name]
    stem, _, verb = name.rpartition("_")
    app, _, model = stem.rpartition("_")
    assert verb in VERBS and app, f"{name} is a page without a right"
    return f"{app}.{VERBS[verb]}_{model}"


def url(path: str) -> str:
    """A path with something in the place of its parameters."""
    for part, value in {
        "<path:object_id>": "00000000-0000-0000-0000-000000000000",
        "<int:number>": "1",
        "<int:pk>": "1",
        "<id>": "1",
    }.items():
        path = path.replace(part, value)
    return "/admin/" + path.strip("^$").replace("\\Z", "").replace("(?P<app_label>", "")


NAMED = sorted({(name, path) for name, path in patterns()} - set())
ASKING = [(n, p) for n, p in NAMED if n not in FOR_ALL and n not in LEAD_ON and "(?P" not in p]


@pytest.fixture
def visitor(client: Client, request: pytest.FixtureRequest) -> Client:
    role = request.param
    user = User.objects.create_user(f"the {role or 'stranger'}", password="x", is_staff=True)
    if role:
        user.groups.add(Group.objects.get(name=role))
    client.force_login(user)
    client.handler.user = user  # type: ignore[attr-defined]
    return client


@pytest.mark.parametrize(
    "visitor",
    [role if role in SHORT else pytest.param(role, marks=pytest.mark.long) for role in ROLES],
    indirect=True,
)
def test_each_page_lets_in_who_has_its_right_and_nobody_else(visitor: Client) -> None:
    user = User.objects.get()
    assert len(ASKING) > 80
    wrong = []
    for name, path in ASKING:
        right = right_of(name)
        method = visitor.post if name in POSTED else visitor.get
        answer = method(url(path))
        is_out = answer.status_code == 403 or (
            answer.status_code == 302 and answer["Location"] in ("/admin/", "/admin/login/")
        )
        may = user.has_perm(right)
        is_missing = answer.status_code == 302 and answer["Location"] == "/admin/"  # no such row
        writes_only_here = answer.status_code == 403 and not _can_be_done(name)
        asks_for_a_factor = answer.status_code == 403 and b"second factor" in answer.content
        is_let_in = not is_out or is_missing or writes_only_here or asks_for_a_factor
        if may and not is_let_in:
            wrong.append(f"{name}: {user} has {right} and gets {answer.status_code}")
        if not may and not is_out:
            wrong.append(f"{name}: {user} lacks {right} and gets {answer.status_code}")
    assert wrong == []


def _can_be_done(name: str) -> bool:
    """Whether the console offers it to a superuser: rows of the node are not added by hand."""
    stem, _, verb = name.rpartition("_")
    app, _, model = stem.rpartition("_")
    found = next((m for m in CONSOLE._registry if m._meta.label_lower == f"{app}.{model}"), None)
    if found is None or verb not in ("add", "delete", "change"):
        return True

    class Request:
        user = User(is_superuser=True, is_active=True, is_staff=True)

    return bool(getattr(CONSOLE._registry[found], f"has_{verb}_permission")(Request()))


@pytest.mark.parametrize(
    ("role", "has", "lacks"),
    [
        (
            roles.VIEWER,
            ("msgnode.view_session", "policies.view_policyset", "spark.view_report",
             "msgnode.view_auditentry"),
            ("msgnode.change_session", "policies.change_rule", "auth.view_user",
             "msgnode.view_apikey", "registry.change_hyperty", "spark.add_reportrun"),
        ),
        (
            roles.OPERATOR,
            ("msgnode.change_session", "msgnode.add_ban", "registry.delete_hyperty",
             "spark.add_reportrun", "msgnode.add_addresspool"),
            ("policies.change_rule", "policies.add_version", "auth.change_user",
             "msgnode.add_apikey"),
        ),
        (
            roles.AUTHOR,
            ("policies.change_rule", "policies.add_version", "policies.delete_policyset"),
            ("msgnode.change_session", "msgnode.add_ban", "auth.view_user"),
        ),
        (
            roles.ADMINISTRATOR,
            ("auth.change_user", "msgnode.add_apikey", "oauth2_provider.add_application",
             "policies.add_version", "msgnode.change_session", "axes.delete_accessattempt"),
            (),
        ),
    ],
)  # fmt: skip
def test_a_role_has_its_rights_and_no_more(
    role: str, has: tuple[str, ...], lacks: tuple[str, ...]
) -> None:
    user = User.objects.create_user("someone", is_staff=True)
    user.groups.add(Group.objects.get(name=role))
    assert [right for right in has if not user.has_perm(right)] == []
    assert [right for right in lacks if user.has_perm(right)] == []


def test_roles_are_made_again_and_keep_what_was_added() -> None:
    viewer = Group.objects.get(name=roles.VIEWER)
    added = Permission.objects.get(codename="add_ban")
    before = viewer.permissions.count()
    view = Permission.objects.get(codename="view_session", content_type__app_label="msgnode")
    viewer.permissions.remove(view)
    viewer.permissions.add(added)
    roles.make()
    roles.make()
    assert viewer.permissions.count() == before + 1
    assert Group.objects.filter(name__in=ROLES).count() == 4


def test_every_right_the_console_knows_is_given_to_the_administrator() -> None:
    user = User.objects.create_user("someone", is_staff=True)
    user.groups.add(Group.objects.get(name=roles.ADMINISTRATOR))
    rights = {right_of(name) for name, _ in ASKING}
    rights = {right for right in rights if not right.startswith("django_celery_results")}
    assert sorted(right for right in rights if not user.has_perm(right)) == []


def test_a_user_of_the_domain_does_not_get_into_the_console(client: Client) -> None:
    user = User.objects.create_user("alice", password="wonderland 7")
    client.force_login(user)
    for _, path in ASKING:
        answer = client.get(url(path))
        assert answer.status_code == 302, path
        assert answer["Location"].startswith("/admin/login/"), path


def test_the_first_page_shows_nothing_to_who_has_no_role(client: Client) -> None:
    Session.objects.create(runtime_url="runtime://localhost/secret")
    client.force_login(User.objects.create_user("new", is_staff=True))
    text = client.get("/admin/").content.decode()
    assert "Your account has no role yet" in text
    assert "Open sessions" not in text


def test_an_account_that_is_given_a_role_logs_in_and_is_let_in_no_more_without_one(
    client: Client,
) -> None:
    client.force_login(User.objects.create_superuser("boss"))
    viewer = Group.objects.get(name=roles.VIEWER)
    form = {"username": "eve", "usable_password": "true", "password1": "Secret-pass-9",
            "password2": "Secret-pass-9", "email": "", "groups": [viewer.pk]}  # fmt: skip
    assert (
        "sees everything but accounts and keys"
        in client.get("/admin/auth/user/add/").content.decode()
    )
    client.post("/admin/auth/user/add/", form)
    eve = Client()
    answer = eve.post("/admin/login/", {"username": "eve", "password": "Secret-pass-9"})
    assert (answer.status_code, eve.get("/admin/msgnode/session/").status_code) == (302, 200)
    pk = User.objects.get(username="eve").pk
    page = client.get(f"/admin/auth/user/{pk}/change/").content.decode()
    assert "user_permissions" not in page and "is_staff" not in page
    client.post(f"/admin/auth/user/{pk}/change/", {"username": "eve", "is_active": "on"})
    assert eve.get("/admin/msgnode/session/").status_code == 302
    assert not User.objects.get(pk=pk).is_staff


def test_a_group_without_permissions_lets_nobody_into_the_console() -> None:
    user, cards = User.objects.create_user("alice"), Group.objects.create(name="cards")
    cards.user_set.add(user)
    assert not User.objects.get(pk=user.pk).is_staff
    Group.objects.get(name=roles.OPERATOR).user_set.add(user)
    assert User.objects.get(pk=user.pk).is_staff


def test_an_administrator_makes_no_superuser(client: Client) -> None:
    boss = User.objects.create_superuser("boss")
    admin_ = User.objects.create_user("admin", is_staff=True)
    admin_.groups.add(Group.objects.get(name=roles.ADMINISTRATOR))
    client.force_login(admin_)
    form = {
        "username": "admin", "is_active": "on", "is_superuser": "on",
        "groups": [Group.objects.get(name=roles.ADMINISTRATOR).pk],
    }  # fmt: skip
    client.post(f"/admin/auth/user/{admin_.pk}/change/", form)
    admin_.refresh_from_db()
    assert not admin_.is_superuser
    assert client.post(f"/admin/auth/user/{boss.pk}/change/", form).status_code == 403
    assert client.post(f"/admin/auth/user/{boss.pk}/password/", {}).status_code == 403
    client.post(
        "/admin/auth/user/",
        {"action": "delete_selected", "_selected_action": [boss.pk], "post": "yes"},
    )
    assert User.objects.filter(pk=boss.pk).exists()


@pytest.fixture
def help_desk(client: Client) -> Client:
    """Who has a role that may change accounts and roles, and nothing else."""
    desk = Group.objects.create(name="help desk")
    rights = ("add_user", "change_user", "view_user", "delete_user", "change_group", "view_group")
    desk.permissions.set(Permission.objects.filter(codename__in=rights))
    User.objects.create_user("desk").groups.add(desk)
    client.force_login(User.objects.get(username="desk"))
    return client


def test_nobody_gives_a_role_that_may_more_than_he_may(help_desk: Client) -> None:
    desk, alice = User.objects.get(username="desk"), User.objects.create_user("alice")
    for user in (desk, alice):
        for role in (roles.ADMINISTRATOR, roles.VIEWER):
            form = {"username": user.username, "is_active": "on",
                    "groups": [Group.objects.get(name=role).pk]}  # fmt: skip
            answer = help_desk.post(f"/admin/auth/user/{user.pk}/change/", form)
            assert "not one of the available choices" in answer.content.decode()
    own = {"username": "alice", "is_active": "on", "groups": [desk.groups.get().pk]}
    help_desk.post(f"/admin/auth/user/{alice.pk}/change/", own)
    assert [group.name for group in alice.groups.all()] == ["help desk"]


def test_nobody_changes_an_account_that_may_more_than_he_may(help_desk: Client) -> None:
    eve = User.objects.create_user("eve", password="let me in 7", is_active=False)
    eve.groups.add(Group.objects.get(name=roles.VIEWER))
    password = {"usable_password": "true", "password1": "Secret-pass-9",
                "password2": "Secret-pass-9"}  # fmt: skip
    for path, form in (
        ("change/", {"username": "eve", "is_active": "on"}),
        ("password/", password),
        ("delete/", {"post": "yes"}),
    ):
        assert help_desk.post(f"/admin/auth/user/{eve.pk}/{path}", form).status_code == 403
    selected = {"_selected_action": [eve.pk], "post": "yes"}
    for action in ("delete_selected", "end_logins", "remove_factors"):
        help_desk.post("/admin/auth/user/", {"action": action, **selected})
    eve.refresh_from_db()
    assert not eve.is_active and eve.check_password("let me in 7")


def test_nobody_gives_a_role_what_he_may_not_do(help_desk: Client) -> None:
    desk, administrator = (
        Group.objects.get(name="help desk"),
        Group.objects.get(name=roles.ADMINISTRATOR),
    )
    more = Permission.objects.get(codename="add_issuer")
    inline = {"access-TOTAL_FORMS": 0, "access-INITIAL_FORMS": 0}
    form = {"name": "help desk", "permissions": [more.pk], **inline}
    page = help_desk.post(f"/admin/auth/group/{desk.pk}/change/", form)
    assert "not one of the available choices" in page.content.decode()
    assert not desk.permissions.filter(pk=more.pk).exists()
    refused = help_desk.post(f"/admin/auth/group/{administrator.pk}/change/", {"name": "x"})
    assert refused.status_code == 403


def test_nobody_lets_an_issuer_give_a_role_that_may_more_than_he_may(client: Client) -> None:
    keeper = Group.objects.create(name="keeper")
    keeper.permissions.set(
        Permission.objects.filter(content_type__model__in=("issuer", "roleofgroup"))
    )
    User.objects.create_user("keeper").groups.add(keeper)
    client.force_login(User.objects.get(username="keeper"))
    issuer = Issuer.objects.create(name="company", url="https://idp.company.test", audiences="node")
    path = f"/admin/msgnode/issuer/{issuer.pk}/change/"
    administrator = Group.objects.get(name=roles.ADMINISTRATOR)
    page = client.get(path)
    assert page.status_code == 200
    (inline,) = page.context["inline_admin_formsets"]
    offered = inline.formset.empty_form.fields["role"].queryset
    assert [group.name for group in offered] == ["keeper"]
    issuer.roles.create(group="admins", role=administrator)
    assert client.post(path, {"url": "https://keeper.test"}).status_code == 403


def test_the_resolver_knows_all_of_the_console() -> None:
    """The table is taken from the site the URLs lead to."""
    assert any(
        str(each.pattern) == "admin/" for each in get_resolver("msgnode.site_urls").url_patterns
    )
