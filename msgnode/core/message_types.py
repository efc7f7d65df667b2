"""The known values of the header field `type` (docs/reference/messages.md, section 1.1)."""

TYPES = frozenset(
    {
        *("create", "read", "update", "delete", "subscribe", "unsubscribe"),
        *("response", "forward", "execute", "handshake", "event", "init", "ping", "pong"),
        *("open", "re-open", "close"),
    }
)
