"""Production: PostgreSQL, Redis and TLS in front; what is missing is named at once, not later."""

from __future__ import annotations

from django.core.exceptions import ImproperlyConfigured

from .base import ALLOWED_HOSTS, DATABASES, REDIS_URL, SECRET_KEY, env

_missing = [
    name
    for name, present in {
        "SECRET_KEY": SECRET_KEY,
        "REDIS_URL": REDIS_URL,
        "DATABASE_URL": "sqlite3" not in DATABASES["default"]["ENGINE"],
    }.items()
    if not present
]
if _missing:
    raise ImproperlyConfigured(f"NODE_MODE=production needs {', '.join(_missing)}.")
if "*" in ALLOWED_HOSTS:
    raise ImproperlyConfigured("NODE_MODE=production needs ALLOWED_HOSTS without a star.")

# msgnode.web.proxies has put the scheme the proxy names in its place.
SECURE_SSL_REDIRECT = env.bool("SECURE_SSL_REDIRECT", default=True)
SECURE_REDIRECT_EXEMPT = [r"^health/", r"^metrics$"]
SECURE_HSTS_SECONDS = env.int("SECURE_HSTS_SECONDS", default=31_536_000)
SECURE_HSTS_INCLUDE_SUBDOMAINS = env.bool("SECURE_HSTS_INCLUDE_SUBDOMAINS", default=True)
SECURE_HSTS_PRELOAD = env.bool("SECURE_HSTS_PRELOAD", default=True)
SESSION_COOKIE_SECURE = True
CSRF_COOKIE_SECURE = True
# The same at each of its ports: a page may come from any worker, or from the web process.
SESSION_COOKIE_NAME = "node_session"
CSRF_COOKIE_NAME = "node_csrf"
