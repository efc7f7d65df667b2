"""The errors of a Redis, each named and with its remedy."""

from __future__ import annotations

LEAST_VERSION = (6, 2)  # XADD NOMKSTREAM and XTRIM MINID


class RedisFault(Exception):
    """Redis cannot do what was requested; the text is for the operator."""


class Unreachable(RedisFault):
    """No answer at the moment: a retry may help."""


class Moved(Unreachable):
    """Another server of the cluster has the key now."""


class Full(RedisFault):
    """Redis has no memory left to write into."""


class Unsuitable(RedisFault):
    """A setting must be changed: a retry does not help."""


def of_reply(text: str) -> RedisFault:
    """The fault that an error reply of Redis stands for."""
    code = text.partition(" ")[0]
    match code:
        case "MOVED" | "ASK":
            return Moved(f"Another server of the Redis Cluster has it: {text}")
        case "OOM":
            return Full("Redis is full: raise its `maxmemory`, or free what others keep in it.")
        case "WRONGPASS":
            return Unsuitable("Redis refuses the name or the password of REDIS_URL.")
        case "NOAUTH":
            return Unsuitable(
                "Redis asks for a password: name it in REDIS_URL (redis://:password@…)."
            )
        case "NOPERM":
            return Unsuitable(f"The user of REDIS_URL may not do what the node needs: {text}")
        case "NOPROTO":
            return Unsuitable(_too_old("a server that does not speak RESP3"))
        case "LOADING" | "MASTERDOWN" | "READONLY" | "CLUSTERDOWN" | "TRYAGAIN" | "UNBLOCKED":
            return Unreachable(f"Redis cannot write at the moment: {text}")
    if "DB index" in text:
        return Unsuitable("REDIS_URL names a database that this Redis does not have.")
    if "unknown command" in text and "HELLO" in text:
        return Unsuitable(_too_old("a server before 6.0"))
    return RedisFault(text)


def check_server(version: str, mode: str, policy: str, max_memory: int) -> None:
    """Check that a server is suitable.

    Args:
        version: the server's version.
        mode: standalone or cluster; a cluster is suitable only if it was requested.
        policy: its `maxmemory-policy`.
        max_memory: its `maxmemory` in bytes, 0 for none.

    Raises:
        Unsuitable: it is not.
    """
    numbers = tuple(int(each) for each in version.split(".")[:2] if each.isdigit())
    if numbers < LEAST_VERSION:
        raise Unsuitable(_too_old(f"Redis {version}"))
    if mode == "cluster":
        raise Unsuitable(
            "REDIS_URL names a Redis Cluster: write it as redis+cluster://host:port,…."
        )
    if max_memory and policy != "noeviction":
        raise Unsuitable(
            f"Redis throws away what it has no room for: its `maxmemory-policy` is {policy}, "
            "set it to noeviction."
        )


def _too_old(what: str) -> str:
    least = ".".join(map(str, LEAST_VERSION))
    return f"REDIS_URL names {what}; Redis {least} or newer is needed."
