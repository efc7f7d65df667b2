"""The look and the menu of the operator's console (django-unfold)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import reverse_lazy

from msgnode.resources import version

_MENU: list[tuple[str, list[tuple[str, ...]]]] = [
    ("", [
        ("Overview", "dashboard", "admin:index", ""),
    ]),
    ("Traffic", [
        ("Sessions", "cable", "msgnode_session"),
        ("Allocations", "tag", "msgnode_allocation"),
        ("Subscriptions", "podcasts", "msgnode_subscription"),
        ("Traces", "timeline", "traces", "msgnode.view_session"),
        ("Playground of runtimes", "joystick", "runtimes", "msgnode.view_session"),
    ]),
    ("Other domains", [
        ("Map", "share", "domains", "msgnode.view_session"),
        ("Peers", "hub", "msgnode_peer"),
        ("Legacy networks", "alt_route", "msgnode_legacynetwork"),
        ("Waiting messages", "pending_actions", "msgnode_peermessage"),
        ("Stored messages", "inventory_2", "msgnode_storedmessage"),
    ]),
    ("Reports", [
        ("The last 24 hours", "monitoring", "admin:spark_last_day", "spark.view_report"),
        ("Reports", "bar_chart", "spark_report"),
        ("Runs", "play_circle", "spark_reportrun"),
        ("Schedule", "schedule", "django_celery_beat_periodictask"),
    ]),
    ("Registry", [
        ("Hyperties", "apps", "registry_hyperty"),
        ("Data objects", "dataset", "registry_dataobject"),
        ("Registered users", "badge", "registry_user"),
        ("Runtimes", "devices", "registry_runtime"),
        ("Status changes", "timeline", "registry_statuschange"),
        ("Global records", "public", "registry_globalrecord"),
    ]),
    ("Definitions", [
        ("Address pools", "inventory_2", "msgnode_addresspool"),
        ("Bans", "block", "msgnode_ban"),
        ("Sensor topics", "sensors", "msgnode_mqtttopic"),
        ("Connectors", "extension", "msgnode_connector"),
    ]),
    ("Identity", [
        ("Issuers", "verified_user", "msgnode_issuer"),
        ("Revocations", "gpp_bad", "msgnode_revocation"),
        ("Address owners", "key", "msgnode_addressowner"),
    ]),
    ("Policies", [
        ("Policy sets", "policy", "policies_policyset"),
        ("Policies", "rule_folder", "policies_policy"),
        ("Rules", "rule", "policies_rule"),
        ("Named lists", "list", "policies_namedlist"),
        ("Tests", "fact_check", "policies_policytest"),
        ("Versions", "published_with_changes", "policies_version"),
        ("Playground", "science", "admin:policies_playground", "policies.view_policyset"),
        ("Shadow report", "visibility", "admin:policies_shadow", "policies.view_policyset"),
        ("Replay of the record", "replay", "admin:policies_replay", "policies.view_policyset"),
        ("Decision log", "gavel", "policies_decisionentry"),
        ("Rule hits", "bar_chart", "policies_rulehits"),
    ]),
    ("Quality of service", [
        ("Reservations", "speed", "qos_reservation"),
        ("TURN servers", "dns", "qos_turnserver"),
        ("Customers", "business", "qos_customer"),
        ("Traffic classes", "stacks", "qos_trafficclass"),
        ("Round trips", "route", "qos_roundtrip"),
    ]),
    ("Health", [
        ("Capacity", "database", "capacity", "msgnode.view_session"),
        ("Backups", "backup", "backups", "auth.change_user"),
        ("Workers", "device_hub", "msgnode_worker"),
        ("Components and stubs", "lan", "msgnode_componentstatus"),
        ("Alarms", "notifications", "msgnode_alarm"),
        ("Alarm rules", "add_alert", "msgnode_alarmrule"),
        ("Webhook hosts", "webhook", "msgnode_webhookhost"),
        ("Notices of alarms", "outgoing_mail", "msgnode_alarmnotice"),
        ("Control messages", "outbox", "msgnode_controlmessage"),
        ("Audit log", "history", "msgnode_auditentry"),
    ]),
    ("Interfaces", [
        ("Messages (AsyncAPI)", "forum", "messages", ""),
        ("HTTP (OpenAPI)", "api", "api-docs", ""),
    ]),
    ("Access", [
        ("Accounts", "person", "auth_user"),
        ("Roles", "group", "auth_group"),
        ("OAuth clients", "apps", "oauth2_provider_application"),
        ("API keys", "key", "msgnode_apikey"),
        ("Signing keys", "vpn_key", "msgnode_providerkey"),
        ("Log-ins", "login", "log-ins", "auth.change_user"),
        ("Failed log-ins", "no_accounts", "axes_accessattempt"),
        ("Push endpoints", "notifications", "msgnode_pushendpoint"),
    ]),
]  # fmt: skip
"""The pages of the menu by group: title, icon, name of the address, and the permission to see it
("": none is needed). Where a model is named, it is that model's list, shown to who may view it.
"""

_LIT = "_page_lit_in_the_side_bar"


def _lit_where_it_leads(pages: list[dict[str, Any]]) -> None:
    """One light in the side bar: of the pages whose address the path begins with, the longest."""

    def find(path: str) -> dict[str, Any] | None:
        first = str(reverse_lazy("admin:index"))
        links = [(str(page["link"]), page) for page in pages]
        leads_here = [each for each in links if path.startswith(each[0])]
        link, page = max(leads_here, key=lambda each: len(each[0]), default=("", None))
        return page if link != first or path == first else None

    def is_active(mine: dict[str, Any]) -> Callable[[HttpRequest], bool]:
        def active(request: HttpRequest) -> bool:
            if not hasattr(request, _LIT):  # found once for a request: every page asks
                setattr(request, _LIT, find(request.path))
            return getattr(request, _LIT) is mine

        return active

    for page in pages:
        page["active"] = is_active(page)


def unfold(domain: str) -> dict[str, Any]:
    """The setting UNFOLD of a node of this domain."""
    return {
        "SITE_TITLE": "Messaging Node",
        "SITE_HEADER": "Messaging Node",
        "SITE_SUBHEADER": f"{domain} · {version()}",
        "SITE_SYMBOL": "hub",
        "SITE_FAVICONS": [
            {
                "rel": "icon",
                "type": "image/svg+xml",
                "href": lambda request: static("msgnode/landing/icon.svg"),
            }
        ],
        "SITE_URL": "/",
        "SHOW_HISTORY": True,
        "SHOW_VIEW_ON_SITE": False,
        "SHOW_BACK_BUTTON": True,
        "DASHBOARD_CALLBACK": "msgnode.console.dashboard.key_numbers",
        "COMMAND": {"search_models": False, "show_history": False},
        "STYLES": [
            lambda request: static("msgnode/colours.css"),
            lambda request: static("msgnode/console.css"),
        ],
        "SCRIPTS": [lambda request: static("msgnode/console.js")],
        "COLORS": {"primary": _shades("brand"), "base": _shades("grey")},
        "ACCOUNT": {
            "navigation": [
                {"title": "Your log-in", "link": reverse_lazy("own-log-in")},
            ]
        },
        "SIDEBAR": {
            "show_search": True,
            "command_search": True,
            "show_all_applications": True,
            "navigation": _navigation(),
        },
    }


def _navigation() -> list[dict[str, Any]]:
    groups = [{"items": [_page(*page) for page in pages]} for _, pages in _MENU]
    _lit_where_it_leads([page for group in groups for page in group["items"]])
    return [
        {"title": title, **group} if title else group
        for (title, _), group in zip(_MENU, groups, strict=True)
    ]


def _shades(name: str) -> dict[str, str]:
    """The theme's shades of a colour, which colours.css has."""
    return {str(shade): f"var(--{name}-{shade})" for shade in (50, *range(100, 1000, 100), 950)}


def _page(title: str, icon: str, name: str, permission: str | None = None) -> dict[str, Any]:
    if permission is None:
        app, _, model = name.rpartition("_")
        name, permission = f"admin:{name}_changelist", f"{app}.view_{model}"
    page: dict[str, Any] = {"title": title, "icon": icon, "link": reverse_lazy(name)}
    if permission:
        page["permission"] = lambda request: request.user.has_perm(permission)
    return page
