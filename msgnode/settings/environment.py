"""Reads the environment: which mode, where the node is, and what it may write."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import environ
from django.core.exceptions import ImproperlyConfigured

from msgnode.resources import HOME, own_key

BASE_DIR = Path(__file__).resolve().parent.parent.parent


class _Environment(environ.Env):
    """Names the variable whose value cannot be read."""

    def get_value(self, var: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().get_value(var, *args, **kwargs)
        except ValueError as fault:
            raise ImproperlyConfigured(f"{var} cannot be read: {fault}") from None


env = _Environment()
if (HOME / ".env").is_file():
    env.read_env(HOME / ".env")

NODE_MODE: str = env("NODE_MODE", default="embedded")
if NODE_MODE not in ("embedded", "production"):
    raise ImproperlyConfigured(f"NODE_MODE is {NODE_MODE!r}; it is embedded or production.")

# What `python -m msgnode.servers.main` is: a worker with all of the node, or console and API alone.
ROLE: str = env("ROLE", default="node")
if ROLE not in ("node", "web"):
    raise ImproperlyConfigured(f"ROLE is {ROLE!r}; it is node or web.")
HOST: str = env("HOST", default="127.0.0.1")
PORT: int = env.int("PORT", default=8000)
DOMAIN: str = env("DOMAIN", default="localhost").lower()
# Where browsers find the node; the embedded OpenID provider's issuer is PUBLIC_URL + "/o".
PUBLIC_URL: str = env(
    "PUBLIC_URL",
    default=f"http://localhost:{PORT}" if NODE_MODE == "embedded" else f"https://{DOMAIN}",
).rstrip("/")
IS_TLS = PUBLIC_URL.startswith("https://")
WORKERS: int = env.int("WORKERS", default=1)
DATA_DIR = Path(env("DATA_DIR", default=str(HOME / "var"))).resolve()
# A restore that was killed: nothing starts on half of it, but for the restore that ends it.
UNFINISHED_RESTORE = "restore.unfinished"
if (DATA_DIR / UNFINISHED_RESTORE).exists() and sys.argv[1:2] != ["restore"]:
    raise ImproperlyConfigured(
        f"a restore of {DATA_DIR} was interrupted; end it with `manage.py restore --finish`."
    )


def _secret_key() -> str:
    """The key of an embedded node."""
    try:
        DATA_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)
        return own_key(DATA_DIR / "secret_key")
    except OSError as fault:
        raise ImproperlyConfigured(f"DATA_DIR {DATA_DIR}: {fault}") from None


DEBUG = False
SECRET_KEY: str = env("SECRET_KEY", default="")
# Where the node keeps the key if it has made it itself.
OWN_SECRET_KEY: Path | None = None
if not SECRET_KEY and NODE_MODE == "embedded":
    SECRET_KEY = _secret_key()
    OWN_SECRET_KEY = DATA_DIR / "secret_key"
ALLOWED_HOSTS: list[str] = env.list(
    "ALLOWED_HOSTS",
    default=["*"]
    if NODE_MODE == "embedded" and HOST in ("127.0.0.1", "localhost", "::1")
    else [DOMAIN, HOST],
)
# Forms of this origin are taken, also if a proxy names the node otherwise.
CSRF_TRUSTED_ORIGINS = ["{0.scheme}://{0.netloc}".format(urlsplit(PUBLIC_URL))]
# Proxies in front that are believed when they name the client and the scheme (X-Forwarded-*).
PROXIES: int = env.int("PROXIES", default=0 if NODE_MODE == "embedded" else 1)


def database_of_environment() -> dict[str, Any]:
    """The database of DATABASE_URL. Raises ImproperlyConfigured for one that a node cannot use."""
    found = database_of(env("DATABASE_URL"), "DATABASE_URL")
    if not found.get("ENGINE", "").endswith((".sqlite3", ".postgresql")):
        raise ImproperlyConfigured(
            "DATABASE_URL is not the URL of a database that the node can use: "
            "postgres://user:password@host/name, or sqlite:///path."
        )
    return found


def database_of(url: str, named: str) -> dict[str, Any]:
    """The database of a URL, as Django's settings have it; of no engine if it is none.

    Args:
        url: may contain a password, which no error shows.
        named: what errors call it.

    Raises:
        ImproperlyConfigured: it cannot be read.
    """
    _, _, behind = url.partition("://")
    is_cut = "@" in behind.partition("/")[2].partition("?")[0] and not url.startswith("sqlite:")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they show the URL with its password
            found: dict[str, Any] = environ.Env.db_url_config(url)
    except ValueError:  # its text shows a part of the password
        is_cut = True
    if is_cut:
        raise ImproperlyConfigured(
            f"{named} cannot be read. In the user's name and password, write / as %2F, ? as %3F, "
            "# as %23, @ as %40 and % as %25."
        )
    return found
