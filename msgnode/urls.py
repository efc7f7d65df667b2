"""HTTP addresses of the node: the metrics, and all else, which is loaded when used.

A worker that answers no page has neither Django's admin nor the REST framework in memory.
"""

from django.urls import URLResolver, path
from django.urls.resolvers import RoutePattern

from msgnode.ops.metrics import metrics
from msgnode.web import unavailable

handler500 = unavailable.server_error

urlpatterns = [
    path("metrics", metrics),
    # By name, it is imported by the first address that is not above; `include` imports at once.
    URLResolver(RoutePattern(""), "msgnode.site_urls"),
]
