"""Addresses of the embedded OpenID provider, below `/o/`."""

from django.urls import path

from . import views
from .throttle import throttled

app_name = "oauth2_provider"  # the toolkit looks its own pages up by it

urlpatterns = [
    path(".well-known/openid-configuration", views.Discovery.as_view(),
         name="oidc-connect-discovery-info"),
    path(".well-known/oauth-authorization-server", views.Discovery.as_view(),
         name="oauth-server-metadata"),
    path(".well-known/jwks.json", views.Keys.as_view(), name="jwks-info"),
    path("authorize/", views.Authorization.as_view(), name="authorize"),
    path("token/", views.for_clients(throttled(views.Token.as_view())), name="token"),
    path("userinfo/", views.for_clients(views.UserInfo.as_view()), name="user-info"),
    path("revoke/", views.for_clients(throttled(views.Revoke.as_view())), name="revoke-token"),
    path("introspect/", throttled(views.Introspection.as_view()), name="introspect"),
    path("tokeninfo", views.TokenInfo.as_view(), name="token-info"),
    path("logout/", views.Logout.as_view(), name="rp-initiated-logout"),
    path("done", views.done, name="done"),
]  # fmt: skip
