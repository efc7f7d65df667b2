"""HTTP addresses of the node."""

from django.contrib import admin
from django.urls import path

from msgnode import health
from msgnode.metrics import metrics

urlpatterns = [
    path("health/live", health.live),
    path("health/ready", health.ready),
    path("metrics", metrics),
    path("admin/", admin.site.urls),
]
