"""Addresses of the registry: the field's two trees, /api/v1, its document and its pages."""

from typing import Any

from django.urls import include, path, re_path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.routers import SimpleRouter

from . import problems, views
from .field import DomainRegistryView
from .field_global import GlobalRegistryView

# Nobody is looked up for it: it is the same for all, and needs no database.
FOR_ALL: dict[str, Any] = {"authentication_classes": [], "permission_classes": []}

router = SimpleRouter(trailing_slash=False, use_regex_path=True)
router.register("hyperties", views.HypertyViews, "hyperty")
router.register("data-objects", views.DataObjectViews, "data-object")
router.register("users", views.UserViews, "registry-user")
router.register("changes", views.ChangeViews, "status-change")
router.register("guids", views.GlobalRecordViews, "global-record")

urlpatterns = [
    re_path(r"^domain-registry(?P<path>/.*)?$", DomainRegistryView.as_view()),
    re_path(r"^global-registry(?P<path>/.*)?$", GlobalRegistryView.as_view()),
    re_path(r"^api/v1/?$", views.Index.as_view(), name="api-index"),
    path("api/v1/", include(router.urls)),
    re_path(r"^api/v1/(?P<path>.*)$", problems.nothing),
    path("api/schema", SpectacularAPIView.as_view(**FOR_ALL), name="openapi"),
    path(
        "api/docs",
        SpectacularSwaggerSplitView.as_view(url_name="openapi", **FOR_ALL),
        name="api-docs",
    ),
]
