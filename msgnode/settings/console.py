"""The look and the menu of the operator's console (django-unfold)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import reverse_lazy

from msgnode.resources import version

_POLICIES = "policies.view_policyset"


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
    setting: dict[str, Any] = {
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
            "navigation": [
                {"items": [_item("Overview", "dashboard", "index")]},
                {
                    "title": "Traffic",
                    "items": [
                        _item("Sessions", "cable", "msgnode_session"),
                        _item("Allocations", "tag", "msgnode_allocation"),
                        _item("Subscriptions", "podcasts", "msgnode_subscription"),
                        _view("Traces", "timeline", "traces", "msgnode.view_session"),
                        _view(
                            "Playground of runtimes", "joystick", "runtimes", "msgnode.view_session"
                        ),
                    ],
                },
                {
                    "title": "Other domains",
                    "items": [
                        _view("Map", "share", "domains", "msgnode.view_session"),
                        _item("Peers", "hub", "msgnode_peer"),
                        _item("Legacy networks", "alt_route", "msgnode_legacynetwork"),
                        _item("Waiting messages", "pending_actions", "msgnode_peermessage"),
                        _item("Stored messages", "inventory_2", "msgnode_storedmessage"),
                    ],
                },
                {
                    "title": "Reports",
                    "items": [
                        _page(
                            "The last 24 hours", "monitoring", "spark_last_day", "spark.view_report"
                        ),
                        _item("Reports", "bar_chart", "spark_report"),
                        _item("Runs", "play_circle", "spark_reportrun"),
                        _item("Schedule", "schedule", "django_celery_beat_periodictask"),
                    ],
                },
                {
                    "title": "Registry",
                    "items": [
                        _item("Hyperties", "apps", "registry_hyperty"),
                        _item("Data objects", "dataset", "registry_dataobject"),
                        _item("Registered users", "badge", "registry_user"),
                        _item("Runtimes", "devices", "registry_runtime"),
                        _item("Status changes", "timeline", "registry_statuschange"),
                        _item("Global records", "public", "registry_globalrecord"),
                    ],
                },
                {
                    "title": "Definitions",
                    "items": [
                        _item("Address pools", "inventory_2", "msgnode_addresspool"),
                        _item("Bans", "block", "msgnode_ban"),
                        _item("Sensor topics", "sensors", "msgnode_mqtttopic"),
                        _item("Connectors", "extension", "msgnode_connector"),
                    ],
                },
                {
                    "title": "Identity",
                    "items": [
                        _item("Issuers", "verified_user", "msgnode_issuer"),
                        _item("Revocations", "gpp_bad", "msgnode_revocation"),
                        _item("Address owners", "key", "msgnode_addressowner"),
                    ],
                },
                {
                    "title": "Policies",
                    "items": [
                        _item("Policy sets", "policy", "policies_policyset"),
                        _item("Policies", "rule_folder", "policies_policy"),
                        _item("Rules", "rule", "policies_rule"),
                        _item("Named lists", "list", "policies_namedlist"),
                        _item("Tests", "fact_check", "policies_policytest"),
                        _item("Versions", "published_with_changes", "policies_version"),
                        _page("Playground", "science", "policies_playground", _POLICIES),
                        _page("Shadow report", "visibility", "policies_shadow", _POLICIES),
                        _page("Replay of the record", "replay", "policies_replay", _POLICIES),
                        _item("Decision log", "gavel", "policies_decisionentry"),
                        _item("Rule hits", "bar_chart", "policies_rulehits"),
                    ],
                },
                {
                    "title": "Quality of service",
                    "items": [
                        _item("Reservations", "speed", "qos_reservation"),
                        _item("TURN servers", "dns", "qos_turnserver"),
                        _item("Customers", "business", "qos_customer"),
                        _item("Traffic classes", "stacks", "qos_trafficclass"),
                        _item("Round trips", "route", "qos_roundtrip"),
                    ],
                },
                {
                    "title": "Health",
                    "items": [
                        _view("Capacity", "database", "capacity", "msgnode.view_session"),
                        _view("Backups", "backup", "backups", "auth.change_user"),
                        _item("Workers", "device_hub", "msgnode_worker"),
                        _item("Components and stubs", "lan", "msgnode_componentstatus"),
                        _item("Alarms", "notifications", "msgnode_alarm"),
                        _item("Alarm rules", "add_alert", "msgnode_alarmrule"),
                        _item("Webhook hosts", "webhook", "msgnode_webhookhost"),
                        _item("Notices of alarms", "outgoing_mail", "msgnode_alarmnotice"),
                        _item("Control messages", "outbox", "msgnode_controlmessage"),
                        _item("Audit log", "history", "msgnode_auditentry"),
                    ],
                },
                {
                    "title": "Interfaces",
                    "items": [
                        _document("Messages (AsyncAPI)", "forum", "messages"),
                        _document("HTTP (OpenAPI)", "api", "api-docs"),
                    ],
                },
                {
                    "title": "Access",
                    "items": [
                        _item("Accounts", "person", "auth_user"),
                        _item("Roles", "group", "auth_group"),
                        _item("OAuth clients", "apps", "oauth2_provider_application"),
                        _item("API keys", "key", "msgnode_apikey"),
                        _item("Signing keys", "vpn_key", "msgnode_providerkey"),
                        _view("Log-ins", "login", "log-ins", "auth.change_user"),
                        _item("Failed log-ins", "no_accounts", "axes_accessattempt"),
                        _item("Push endpoints", "notifications", "msgnode_pushendpoint"),
                    ],
                },
            ],
        },
    }
    groups = setting["SIDEBAR"]["navigation"]
    _lit_where_it_leads([page for group in groups for page in group["items"]])
    return setting


def _shades(name: str) -> dict[str, str]:
    """The theme's shades of a colour, which colours.css has."""
    return {str(shade): f"var(--{name}-{shade})" for shade in (50, *range(100, 1000, 100), 950)}


def _page(title: str, icon: str, name: str, permission: str) -> dict[str, Any]:
    """A page that is no list, shown to who has the permission."""
    return {
        "title": title,
        "icon": icon,
        "link": reverse_lazy(f"admin:{name}"),
        "permission": lambda request: request.user.has_perm(permission),
    }


def _view(title: str, icon: str, name: str, permission: str) -> dict[str, Any]:
    """A page beside the lists of the console, shown to who has the permission."""
    return {
        "title": title,
        "icon": icon,
        "link": reverse_lazy(name),
        "permission": lambda request: request.user.has_perm(permission),
    }


def _document(title: str, icon: str, name: str) -> dict[str, Any]:
    """A page of the node that needs no account."""
    return {"title": title, "icon": icon, "link": reverse_lazy(name)}


def _item(title: str, icon: str, page: str) -> dict[str, Any]:
    name = page if page == "index" else f"{page}_changelist"
    item: dict[str, Any] = {"title": title, "icon": icon, "link": reverse_lazy(f"admin:{name}")}
    if page != "index":
        app, _, model = page.rpartition("_")
        item["permission"] = lambda request: request.user.has_perm(f"{app}.view_{model}")
    return item
