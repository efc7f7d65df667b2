"""HTTP addresses of the node."""

from django.contrib import admin
from django.urls import include, path, re_path

from msgnode import health
from msgnode.metrics import metrics
from msgnode.newcomer import newcomer
from msgnode.stubs.views import OTHER_TYPES, STUB_TYPES, CatalogueView

_CATALOGUE = rf"^\.well-known/(?P<kind>{'|'.join(STUB_TYPES + OTHER_TYPES)})(?:/(?P<rest>.*))?$"

urlpatterns = [
    path("", newcomer, name="newcomer"),
    re_path(_CATALOGUE, CatalogueView.as_view(), name="catalogue"),
    path("health/live", health.live),
    path("health/ready", health.ready),
    path("metrics", metrics),
    path("api/v1/", include("spark.urls")),
    path("admin/", admin.site.urls),
    path("", include("registry.rest.urls")),
]
