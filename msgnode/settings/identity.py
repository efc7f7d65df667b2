"""Who is who: the embedded OpenID provider, log-in, and the identities of messages."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from . import access
from .environment import NODE_MODE, PUBLIC_URL, env

# --- The embedded OpenID provider -----------------------------------------------------------------
PROVIDER: dict[str, Any] = {
    "ISSUER": f"{PUBLIC_URL}/{access.PROVIDER_PATH}",
    "ACCESS_TOKEN_SECONDS": env.int("ACCESS_TOKEN_SECONDS", default=3600),
    "ID_TOKEN_SECONDS": env.int("ID_TOKEN_SECONDS", default=3600),
    "REFRESH_TOKEN_SECONDS": env.int("REFRESH_TOKEN_SECONDS", default=14 * 24 * 3600),
    # failures of one client from one address, until it is answered 429
    "FAILURES_PER_MINUTE": env.int("CLIENT_FAILURES_PER_MINUTE", default=20),
    # a new key is published so long before it signs, and made again after so many days
    "KEY_LEAD_SECONDS": env.int("PROVIDER_KEY_LEAD_SECONDS", default=900),
    "KEY_DAYS": env.float("PROVIDER_KEY_DAYS", default=90.0),
}
# Whose cards there are, for callers from elsewhere: "" nobody's, "*" all users', or a group's.
CONTACT_CARDS: dict[str, Any] = {
    "OF": env("CONTACT_CARDS", default=""),
    "PER_MINUTE": env.int("CONTACT_CARDS_PER_MINUTE", default=60),
}
# Whether callers from elsewhere may leave invitations for users, and users send such; so many a
# minute for one user, from one user, and ten times as many from one address.
INVITATIONS: dict[str, Any] = {
    "ON": env.bool("INVITATIONS", default=False),
    "PER_MINUTE": env.int("INVITATIONS_PER_MINUTE", default=30),
}
# Encrypts the provider's private keys in the database. Without one SECRET_KEY does.
KEY_ENCRYPTION_KEY: str = env("KEY_ENCRYPTION_KEY", default="")
SECRET_KEY_FALLBACKS: list[str] = env.list("SECRET_KEY_FALLBACKS", default=[])
OAUTH2_PROVIDER = access.provider(
    PROVIDER["ISSUER"], PROVIDER, is_production=NODE_MODE == "production"
)

# --- Log-in, sessions of browsers, API keys -------------------------------------------------------
AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",  # first: it refuses who has guessed too often
    "django.contrib.auth.backends.ModelBackend",
]
# Wrong passwords for one name from one address, and how long the name is then shut to the address:
# its owner elsewhere is not.
AXES_FAILURE_LIMIT: int = env.int("LOGIN_FAILURES", default=8)
AXES_COOLOFF_TIME = timedelta(minutes=env.float("LOGIN_COOL_OFF_MINUTES", default=15.0))
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_RESET_ON_SUCCESS = True
AXES_CLIENT_IP_CALLABLE = "msgnode.web.proxies.address_of"
AXES_LOCKOUT_CALLABLE = "msgnode.identity.provider.login.locked_out"
AXES_DISABLE_ACCESS_LOG = True  # the audit log has who came in
AXES_ENABLE_ADMIN = False  # msgnode.console.failed_logins shows failures in the console's look
AXES_VERBOSE = False
AXES_SENSITIVE_PARAMETERS = [
    *("username", "ip_address", "next", "token", "access_token", "id_token", "id_token_hint"),
    *("refresh_token", "code", "client_secret", "assertion", "runtimeToken", "api_key"),
]
LOGINS_PER_MINUTE: int = env.int("LOGINS_PER_MINUTE", default=60)
SESSION_COOKIE_AGE: int = env.int("CONSOLE_SESSION_SECONDS", default=8 * 3600)
SESSION_EXPIRE_AT_BROWSER_CLOSE: bool = env.bool("CONSOLE_SESSION_ENDS_WITH_BROWSER", default=True)
AUDIT_DAYS: float = env.float("AUDIT_DAYS", default=730.0)
API_KEYS: dict[str, int] = {
    "DAYS": env.int("API_KEY_DAYS", default=365),
    "PER_MINUTE": env.int("API_KEY_PER_MINUTE", default=60_000),
}
MESSAGE_STORAGE = "django.contrib.messages.storage.session.SessionStorage"  # a key is shown once
CONTENT_SECURITY_POLICY = access.content_security_policy()

# --- Identities of messages -----------------------------------------------------------------------
# anonymous, identified or strict; and the same for single domains of origin
ADMISSION: str = env(
    "ADMISSION", default="anonymous" if NODE_MODE == "embedded" else "identified"
).lower()
ADMISSION_DOMAINS: dict[str, str] = env.dict("ADMISSION_DOMAINS", default={})
# Runtimes of other domains that come here themselves; of each worker.
VISITORS: dict[str, Any] = {
    "TOTAL": env.int("VISITORS", default=10_000),
    "PER_DOMAIN": env.int("VISITORS_PER_DOMAIN", default=2_000),
    "PER_SOURCE": env.int("VISITORS_PER_SOURCE", default=1_000),
    # seconds without a message, and in all; 0: for ever
    "IDLE_SECONDS": env.float("VISITOR_IDLE_SECONDS", default=3600.0),
    "SECONDS": env.float("VISITOR_SECONDS", default=7 * 86_400.0),
    # addresses that each may hold
    "ADDRESSES": env.int("VISITOR_ADDRESSES", default=100),
}
# Origins of the pages that may connect; "*" is any.
WS_ORIGINS: list[str] = env.list(
    "WS_ORIGINS", default=["*"] if NODE_MODE == "embedded" else [PUBLIC_URL]
)
IDENTITY: dict[str, Any] = {
    # whether an identity of an unknown issuer passes as not asserted (in the anonymous mode only)
    "PASSES_UNKNOWN": env.bool("IDENTITY_PASSES_UNKNOWN", default=NODE_MODE == "embedded"),
    "LEEWAY": env.float("IDENTITY_LEEWAY", default=60.0),
    "BINDS_TOKENS": env.bool("IDENTITY_BINDS_TOKENS", default=True),
    # seconds a session may go without an identity where the mode asks for one; 0: for ever
    "IDENTIFY_TIMEOUT": env.float("IDENTIFY_TIMEOUT", default=300.0),
    # tokens that may be bound to one runtime at a time
    "BINDINGS_PER_RUNTIME": env.int("IDENTITY_BINDINGS_PER_RUNTIME", default=1_000),
    # what is kept of tokens: entries in memory
    "CACHE": env.int("IDENTITY_CACHE", default=20_000),
    "CHECKS_PER_SECOND": env.float("IDENTITY_CHECKS_PER_SECOND", default=50.0),
    "INTROSPECTIONS_PER_SECOND": env.float("IDENTITY_INTROSPECTIONS_PER_SECOND", default=100.0),
    # asking issuers: seconds for an answer, hosts beside the issuers' own, how long keys outlive
    # an outage
    "TIMEOUT": env.float("IDENTITY_TIMEOUT", default=3.0),
    "HOSTS": env.list("IDENTITY_HOSTS", default=[]),
    "LOOPBACK_HTTP": env.bool("IDENTITY_LOOPBACK_HTTP", default=NODE_MODE == "embedded"),
    "STALE_KEYS": env.float("IDENTITY_STALE_KEYS", default=24 * 3600.0),
    "OWNER_DAYS": env.int("IDENTITY_OWNER_DAYS", default=30),
}
