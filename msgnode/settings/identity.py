"""Who is who: the embedded OpenID provider, log-in, and the identities of messages."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from . import access
from .environment import NODE_MODE, PUBLIC_URL, env

# --- The embedded OpenID provider -----------------------------------------------------------------
PROVIDER: dict[str, Any] = {
    "ISSUER": f"{PUBLIC_URL}/{access.PROVIDER_PATH}",
    "ID_TOKEN_SECONDS": env.int("ID_TOKEN_SECONDS", default=3600),
    "REFRESH_TOKEN_SECONDS": env.int("REFRESH_TOKEN_SECONDS", default=14 * 24 * 3600),
}
# Whose cards there are, for callers from elsewhere: "" nobody's, "*" all users', or a group's.
CONTACT_CARDS: str = env("CONTACT_CARDS", default="")
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
AXES_COOLOFF_TIME = timedelta(minutes=15)  # guessing goes on at 32 an hour
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
SESSION_EXPIRE_AT_BROWSER_CLOSE = True
AUDIT_DAYS: float = env.float("AUDIT_DAYS", default=730.0)
# Requests of an API key, and of each other client of the registry: an account, or an address.
CLIENT_REQUESTS_PER_MINUTE: int = env.int("CLIENT_REQUESTS_PER_MINUTE", default=60_000)
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
    # seconds a session may go without an identity where the mode asks for one; 0: for ever
    "IDENTIFY_TIMEOUT": env.float("IDENTIFY_TIMEOUT", default=300.0),
    # hosts that discovery documents may refer to, beside the issuers' own
    "HOSTS": env.list("IDENTITY_HOSTS", default=[]),
    "LOOPBACK_HTTP": NODE_MODE == "embedded",  # issuers on the machine of who tries the node out
    "OWNER_DAYS": env.int("IDENTITY_OWNER_DAYS", default=30),
}
