"""HTTP addresses of pages, of the console and of the interfaces: all but what `urls` has itself."""

from django.contrib import admin
from django.contrib.auth.views import LogoutView
from django.urls import include, path, re_path
from django.views.generic import RedirectView
from rest_framework.routers import SimpleRouter

from msgnode import celery_apps
from msgnode.console import (
    acted_meanwhile,
    auditing,
    edited_meanwhile,
    log_in,
    own_log_in,
    prefilled,
)
from msgnode.console.backups import BackupsPage
from msgnode.console.capacity import capacity
from msgnode.console.connectors import ConnectorViews
from msgnode.console.legacy_networks import LegacyNetworkViews
from msgnode.console.live.pages import domains, traces
from msgnode.console.peers_api import PeerViews
from msgnode.console.runtimes import RuntimesPage
from msgnode.console.search import search
from msgnode.console.status_api import StatusView
from msgnode.console.visitors_api import VisitorViews
from msgnode.federation import link_keys, node_proofs
from msgnode.federation.link_socket import own_node
from msgnode.federation.node_proofs import own_connection
from msgnode.identity.provider.card_views import CARD_PATH, CardView, WebFinger
from msgnode.identity.provider.login import Login
from msgnode.identity.provider.password import PasswordChange, PasswordChanged
from msgnode.invitations.endpoints import LeftView, PushView
from msgnode.ops import asyncapi
from msgnode.settings.access import PROVIDER_PATH
from msgnode.stubs.views import IDP_TYPES, OTHER_TYPES, STUB_TYPES, CatalogueView
from msgnode.web import explained
from msgnode.web.landing import favicon, landing, runtime
from spark.api import ReportViews, RunViews

_TYPES = "|".join(STUB_TYPES + IDP_TYPES + OTHER_TYPES)
_CATALOGUE = rf"^\.well-known/(?P<kind>{_TYPES})(?:/(?P<rest>.*))?$"

celery_apps.load()
auditing.follow()  # of the models that were just loaded, too
admin.autodiscover()
CONSOLE = admin.site
for each in (acted_meanwhile, edited_meanwhile, prefilled):
    each.watch(CONSOLE)


def _send(task: str, words: list[str], result: str) -> None:
    """Tell the Celery worker. Raises OSError."""
    from kombu.exceptions import OperationalError  # as spark.enqueue: the node does without

    from msgnode.celery import app

    try:
        app.send_task(task, args=words, task_id=result, retry=False)
    except OperationalError as fault:
        raise OSError(str(fault)) from fault


api = SimpleRouter()
api.register("peers", PeerViews, basename="peer")
api.register("legacy-networks", LegacyNetworkViews, basename="legacy-network")
api.register("connectors", ConnectorViews, basename="connector")
api.register("visitors", VisitorViews, basename="visitor")
api.register("reports", ReportViews, basename="report")
api.register("report-runs", RunViews, basename="report-run")

urlpatterns = [
    path("", landing, name="newcomer"),
    path("runtime", runtime, name="runtime"),
    path("favicon.ico", favicon),
    re_path(_CATALOGUE, CatalogueView.as_view(), name="catalogue"),
    path(f"{node_proofs.PATH}/<str:domain>/<slug:digest>", own_connection, name="own-connection"),
    path(link_keys.PATH, own_node, name="own-node"),
    path(CARD_PATH, CardView.as_view(), name="contact-card"),
    path(".well-known/webfinger", WebFinger.as_view(), name="webfinger"),
    path("push/<str:endpoint>", PushView.as_view(), name="push"),
    path("push/<str:endpoint>/<path:name>", LeftView.as_view(), name="push-left"),
    path("problems/", explained.index, name="problems"),
    path("problems/<slug:kind>/<slug:name>", explained.page, name="problem"),
    path("api/asyncapi.json", asyncapi.asyncapi, name="asyncapi"),
    path("api/messages", asyncapi.page, name="messages"),
    path("api/v1/status", StatusView.as_view(), name="status"),
    path("api/v1/", include(api.urls)),
    path("login/", Login.as_view(), name="login"),
    path("login/password/", PasswordChange.as_view(), name="password"),
    path("login/password/changed/", PasswordChanged.as_view(), name="password-changed"),
    path("login/second/", log_in.SecondStep.as_view(), name="second-factor"),
    path("login/passkey/", log_in.passkey_log_in, name="passkey-log-in"),
    path("login/passkey/question/", log_in.passkey_question, name="passkey-question"),
    path("login/with/<int:pk>/", log_in.begin_at_issuer, name="with-issuer"),
    path("login/with/<int:pk>/back/", log_in.back_from_issuer, name="back-from-issuer"),
    path("login/confirm/", own_log_in.confirm, name="confirm"),
    path("login/own/", own_log_in.own_log_in, name="own-log-in"),
    path("login/own/app/", own_log_in.add_app, name="add-app"),
    path("login/own/passkey/", own_log_in.new_passkey, name="add-passkey"),
    path("login/own/codes/", own_log_in.new_codes, name="new-codes"),
    path("login/own/remove/", own_log_in.remove, name="remove-factor"),
    path("login/own/end/", own_log_in.end_browser, name="end-browser"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path(f"{PROVIDER_PATH}/", include("msgnode.identity.provider.urls")),
    path("admin/login/", log_in.ConsoleLogin.as_view()),  # before the console's own: no brake
    path("admin/password_change/", RedirectView.as_view(pattern_name="password")),
    path("admin/traces/", traces, name="traces"),
    path("admin/capacity/", capacity, name="capacity"),
    path("admin/backups/", BackupsPage(_send), name="backups"),
    path("admin/domains/", domains, name="domains"),
    path("admin/runtimes/", RuntimesPage(asyncapi.document), name="runtimes"),
    path("admin/log-ins/", own_log_in.log_ins, name="log-ins"),
    path("admin/search/", search),  # before the theme's, which keeps what it has found
    path("admin/", CONSOLE.urls),
    path("", include("registry.rest.urls")),
]
