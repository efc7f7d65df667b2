"""HTTP addresses of the node."""

from django.contrib import admin
from django.urls import path

from msgnode import health

urlpatterns = [
    path("health/live", health.live),
    path("health/ready", health.ready),
    path("admin/", admin.site.urls),
]
