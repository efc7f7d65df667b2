"""Settings, chosen by NODE_MODE: `embedded` (default) or `production`.

The environment is read here and nowhere else; `.env.example` documents every variable. Production
is PostgreSQL, Redis and TLS in front; what is missing is named at once, not later.
"""

from __future__ import annotations

from django.core.exceptions import ImproperlyConfigured

from .base import *  # noqa: F403
from .base import ALLOWED_HOSTS, DATABASES, IS_TLS, NODE_MODE, REDIS_URL, SECRET_KEY, env

if NODE_MODE == "production":
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
    SECURE_SSL_REDIRECT = IS_TLS
    SECURE_REDIRECT_EXEMPT = [r"^health/", r"^metrics$"]
    # The header as browsers get it: its parts are settings of Django's.
    _header: str = env("HSTS", default="max-age=31536000; includeSubDomains; preload")
    _hsts = [part.strip().lower() for part in _header.split(";")]
    _ages = [part.removeprefix("max-age=") for part in _hsts if part.startswith("max-age=")]
    if len(_ages) != 1 or not _ages[0].isdecimal():
        raise ImproperlyConfigured(f"HSTS is {_header!r}; it needs a max-age=, in seconds.")
    SECURE_HSTS_SECONDS = int(_ages[0])
    SECURE_HSTS_INCLUDE_SUBDOMAINS = "includesubdomains" in _hsts
    SECURE_HSTS_PRELOAD = "preload" in _hsts
    SESSION_COOKIE_SECURE = True
    CSRF_COOKIE_SECURE = True
    # The same at each of its ports: a page may come from any worker, or from the web process.
    SESSION_COOKIE_NAME = "node_session"
    CSRF_COOKIE_NAME = "node_csrf"
