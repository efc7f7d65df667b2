"""Addresses here and in an XMPP network (XEP-0106), with nobody taken for another. Pure.

    user://a.example/alice@a.example    alice%a.example@gw.legacy.example
    user://a.example/alice              alice@gw.legacy.example
    xmpp://legacy.example/bob           bob@legacy.example

A server lowers capitals and folds letters that look like others, so that two users of ours could
become one there. So a name is mapped only if the server leaves it as it is, and mapping back gives
the same user; else its sender is told that XMPP cannot express it.
"""

from __future__ import annotations

import re
import stringprep
from typing import NamedTuple
from unicodedata import normalize
from urllib.parse import unquote

from msgnode.core import addresses
from msgnode.core.errors import BadMessage

from .network import named_address

MAX_PART_BYTES = 1_023
_ESCAPED = {" ": r"\20", '"': r"\22", "&": r"\26", "'": r"\27", "/": r"\2f", ":": r"\3a",
            "<": r"\3c", ">": r"\3e", "@": r"\40", "\\": r"\5c"}  # fmt: skip
_PLAIN = {code: char for char, code in _ESCAPED.items()}
_CODES = "20|22|26|27|2f|3a|3c|3e|40|5c"
_CODE = re.compile(rf"\\(?:{_CODES})")
_TO_ESCAPE = re.compile(rf"""[ "&'/:<>@]|\\(?={_CODES})""")
_ASCII = re.compile(r"[!#-%(-.0-9;=?A-Z\[-~]+")
"""What nodeprep leaves of ASCII: all but blanks, controls and what it forbids by name."""
_PROHIBITED = (
    stringprep.in_table_c11_c12, stringprep.in_table_c21_c22, stringprep.in_table_c3,
    stringprep.in_table_c4, stringprep.in_table_c5, stringprep.in_table_c6,
    stringprep.in_table_c7, stringprep.in_table_c8, stringprep.in_table_c9,
)  # fmt: skip


class Jid(NamedTuple):
    """An address of XMPP: `local@domain/resource`."""

    local: str
    domain: str
    resource: str = ""

    @property
    def bare(self) -> str:
        """It without its resource."""
        return f"{self.local}@{self.domain}" if self.local else self.domain

    def __str__(self) -> str:
        return f"{self.bare}/{self.resource}" if self.resource else self.bare


def jid_of(text: str) -> Jid:
    """Parse an address of XMPP, as a server writes it.

    >>> jid_of("a@b.example/x@y/z")
    Jid(local='a', domain='b.example', resource='x@y/z')
    """
    bare, _, resource = text.partition("/")
    local, at, domain = bare.partition("@")
    return Jid(local, domain, resource) if at else Jid("", local, resource)


def prepared(local: str) -> str:
    """What a server makes of the part before the `@` (nodeprep), "" if it refuses it.

    >>> prepared("Alice"), prepared("a b"), prepared("alice")
    ('alice', '', 'alice')
    """
    if _ASCII.fullmatch(local):  # nearly all: the tables cost more than all else of a message
        return local.lower() if len(local) <= MAX_PART_BYTES else ""
    mapped = "".join(
        stringprep.map_table_b2(char) for char in local if not stringprep.in_table_b1(char)
    )
    folded = normalize("NFKC", mapped)
    if any(char in "\"&'/:<>@" or any(look(char) for look in _PROHIBITED) for char in folded):
        return ""
    if any(map(stringprep.in_table_a1, folded)) or _is_mixed(folded):
        return ""
    return folded if len(folded.encode(errors="replace")) <= MAX_PART_BYTES else ""


def _is_mixed(text: str) -> bool:
    """Whether it has letters of both directions, as stringprep forbids."""
    if not any(map(stringprep.in_table_d1, text)):
        return False
    is_led = stringprep.in_table_d1(text[0]) and stringprep.in_table_d1(text[-1])
    return not is_led or any(map(stringprep.in_table_d2, text))


def escaped(text: str) -> str:
    r"""A name as it may stand before the `@` (XEP-0106).

    >>> escaped("d'artagnan"), escaped(r"a\40b"), escaped(r"a\b")
    ('d\\27artagnan', 'a\\5c40b', 'a\\b')
    """
    return _TO_ESCAPE.sub(lambda found: _ESCAPED[found[0]], text)


def unescaped(local: str) -> str:
    """The name that was escaped."""
    return _CODE.sub(lambda found: _PLAIN[found[0]], local)


class XmppAddresses:
    """Maps addresses.

    Args:
        own: this node's domain.
        domain: the domain of the network.
        component: the domain of the gateway there.
    """

    def __init__(self, own: str, domain: str, component: str) -> None:
        self.own = own
        self.domain = domain
        self.component = component

    # --- users of this node -----------------------------------------------------------------------

    def local_of(self, user_url: str) -> str:
        """The part before the `@` with which a user of this node has an address there.

        Raises:
            BadMessage: XMPP cannot express this name.
        """
        path = unquote(user_url.removeprefix("user://").partition("/")[2])
        name, at, domain = path.rpartition("@")
        is_plain = not at or "%" in name
        local = escaped(path) if is_plain else f"{escaped(name)}%{escaped(domain)}"
        if not path or prepared(local) != local or self.user_of(local) != user_url:
            raise BadMessage(f"The name {user_url[:200]} cannot be expressed in XMPP.")
        return local

    def user_of(self, local: str) -> str:
        """The user of this node that has this part before the `@`; "" if it is nobody's."""
        if not local or r"\40" not in local:
            name, percent, domain = local.rpartition("%")
            path = f"{unescaped(name)}@{unescaped(domain)}" if percent else unescaped(local)
        else:
            path = unescaped(local)
        return named_address(f"user://{self._home_of(path)}/", path)

    def _home_of(self, path: str) -> str:
        """The domain of the user URL with this path: users of ours log in elsewhere, too."""
        name, at, domain = path.rpartition("@")
        return domain.lower() if at and name else self.own

    # --- users of the network ---------------------------------------------------------------------

    def jid(self, address: str) -> Jid:
        """The address there of an address of the network.

        Raises:
            BadMessage: it names nobody there.
        """
        parsed = addresses.parse(address)
        path = parsed.path.removeprefix("/")
        local, _, resource = path.partition("/")
        local = unquote(local)
        name, at, domain = local.rpartition("@")
        if at and domain.lower() == self.domain:
            local = name
        if not local or prepared(local) != local:
            raise BadMessage(f"{address[:200]} names nobody of {self.domain}.")
        resource = unquote(resource)
        if len(resource.encode()) > MAX_PART_BYTES or not resource.isprintable():
            raise BadMessage(f"{address[:200]} has a resource that XMPP does not have.")
        return Jid(local, self.domain, resource)

    def address(self, jid: Jid) -> str:
        """The address here of somebody there, "" if there can be none."""
        return named_address(f"xmpp://{self.domain}/", jid.local)
