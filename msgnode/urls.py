"""HTTP addresses of the node."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("", include("registry.rest.urls")),
]
