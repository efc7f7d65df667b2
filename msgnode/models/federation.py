"""Other domains: their nodes, with the protostubs that lead there, and legacy networks."""

from __future__ import annotations

import uuid

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils import timezone

from .lengths import ADDRESS_LENGTH
from .scripts import RunsScript

RATE = 2_000
"""Messages a second of a peer, unless an operator says more: it keeps no worker busy alone."""
MESSAGE_ID = 200
"""Characters of a message's id that are kept of it, as it was written (JSON)."""


class Peer(RunsScript):
    """The node of another domain, and what an operator has decided about it."""

    class Kind(models.TextChoices):
        """What its node is: what the link to it has to do (msgnode/federation/kinds.py)."""

        AS_GUESSED = "", "as guessed from its stub"
        OURS = "ours", "a Messaging Node like this one"
        VERTX = "vertx", "Vert.x"
        NODEJS = "nodejs", "NodeJS"
        NOMATRIX = "nomatrix", "NoMatrix"
        UNKNOWN = "unknown", "unknown"

    class Visitors(models.TextChoices):
        """Whether runtimes of its domain may speak here themselves, beside its node."""

        AS_KIND = "", "as its kind"
        ADMITTED = "admitted", "its runtimes may come as visitors"
        REFUSED = "refused", "its node speaks alone"

    domain = models.CharField(max_length=253, unique=True, help_text="Such as example.org.")
    url = models.CharField(
        "URL of its node",
        max_length=500,
        blank=True,
        help_text="Where its catalogue is. Empty: https:// and the domain.",
    )
    hosts = models.CharField(
        "further hosts",
        max_length=500,
        blank=True,
        help_text="That its protostub may connect to besides the domain and what is below it, "
        "separated by spaces.",
    )
    keys = models.TextField(
        "keys of its stub", blank=True, default="", db_default="",
        help_text="Public keys, as a JSON Web Key Set: the stub must be signed with one of them. "
        "Empty: signatures are not looked at.",
    )  # fmt: skip
    kind = models.CharField(
        "kind of node", max_length=16, choices=Kind.choices, blank=True, default="", db_default="",
        help_text="What its node needs to route messages to this one.",
    )  # fmt: skip
    visitors = models.CharField(
        max_length=16, choices=Visitors.choices, blank=True, default="", db_default="",
        help_text="Whether runtimes of this domain may speak here for themselves, or its node "
        "speaks for all of them.",
    )  # fmt: skip
    messages_per_second = models.PositiveIntegerField(
        "messages a second", default=RATE, db_default=RATE,
        help_text="That its node may send, each way; above that it is not read for a moment.",
    )  # fmt: skip
    vouches = models.BooleanField(
        "vouches for its users", default=False, db_default=False,
        help_text="Over a link: what its node says of who writes is a verified identity here.",
    )  # fmt: skip
    is_by_hand = models.BooleanField(
        "its stub was given by hand", default=False, db_default=False, editable=False,
        help_text="No catalogue is looked at, until the stub is looked for again.",
    )  # fmt: skip
    node_found = models.TextField(
        "keys of its node", blank=True, default="", db_default="", editable=False,
        help_text="As its domain publishes them: JSON, by key id.",
    )  # fmt: skip
    node_keys = models.TextField(
        "keys that count", blank=True, default="", db_default="", editable=False,
        help_text="By which its node proves that a link is its own: JSON, by key id.",
    )  # fmt: skip
    looked_at = models.DateTimeField(null=True, blank=True, editable=False)
    discovery = models.CharField(
        "what was found", max_length=300, blank=True, editable=False,
        help_text="Why no protostub was found, if none was.",
    )  # fmt: skip
    stub_id = models.UUIDField(default=uuid.uuid4, editable=False)
    runtime_id = models.UUIDField(default=uuid.uuid4, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ("domain",)

    def __str__(self) -> str:
        return self.domain


class PeerStub(models.Model):
    """A protostub as a domain has offered it: a digest is of one source, for ever."""

    peer = models.ForeignKey(Peer, on_delete=models.CASCADE, related_name="stubs")
    digest = models.CharField(max_length=64, help_text="SHA-256 of the source.")
    source = models.TextField()
    configuration = models.JSONField(default=dict)
    version = models.CharField(max_length=64, blank=True)
    signed_by = models.CharField(
        max_length=200, blank=True, default="", db_default="", help_text="Id of the key."
    )
    kind = models.CharField(
        max_length=16, blank=True, default="", db_default="", help_text="Of node, as it seems."
    )
    found_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("-found_at",)
        constraints = (models.UniqueConstraint(fields=["peer", "digest"], name="peer_stub_once"),)

    def __str__(self) -> str:
        return f"{self.peer_id} {self.digest[:12]}"


class PeerMessage(models.Model):
    """A message that waits for a peer or for its response, as the worker has last said that has it.

    The message itself is in that worker's memory: `queue` and `number` name it there. `is_sent`: it
    has left, and no response has come yet.
    """

    peer = models.ForeignKey(Peer, on_delete=models.CASCADE, related_name="messages")
    queue = models.CharField(max_length=32, editable=False)
    number = models.PositiveBigIntegerField(editable=False)
    is_sent = models.BooleanField("has left", default=False, db_default=False)
    message_id = models.CharField(
        "id", max_length=MESSAGE_ID, blank=True, default="", db_default=""
    )
    kind = models.CharField("class", max_length=16)
    type = models.CharField(max_length=32)
    sender = models.CharField("from", max_length=ADDRESS_LENGTH)
    to = models.CharField(max_length=ADDRESS_LENGTH)
    size = models.PositiveIntegerField(help_text="Bytes.")
    since = models.DateTimeField("waits since")
    until = models.DateTimeField("waits until")
    text = models.TextField("message", blank=True)

    class Meta:
        verbose_name = "message that waits"
        verbose_name_plural = "messages that wait for peers"
        ordering = ("id",)
        constraints = (
            models.UniqueConstraint(fields=["queue", "number"], name="peer_message_once"),
        )

    def __str__(self) -> str:
        return f"{self.type} {self.sender} → {self.to}"


class StoredMessage(models.Model):
    """A request for a peer that its sender wants to be stored until it gets there.

    `set_aside_at`: it could not be delivered, and is not tried any more.
    """

    peer = models.ForeignKey(Peer, on_delete=models.CASCADE, related_name="stored")
    key = models.CharField(max_length=32, unique=True, editable=False)
    message_id = models.CharField(
        "id", max_length=MESSAGE_ID, blank=True, default="", db_default=""
    )
    type = models.CharField(max_length=32)
    sender = models.CharField("from", max_length=ADDRESS_LENGTH)
    to = models.CharField(max_length=ADDRESS_LENGTH)
    size = models.PositiveIntegerField(help_text="Bytes.")
    since = models.DateTimeField("stored at", default=timezone.now)
    until = models.DateTimeField("waits until")
    sealed = models.TextField("message, encrypted", editable=False)
    set_aside_at = models.DateTimeField(null=True, blank=True)
    reason = models.CharField("why", max_length=300, blank=True)

    class Meta:
        verbose_name = "stored message"
        verbose_name_plural = "stored messages for peers"
        ordering = ("id",)

    def __str__(self) -> str:
        return f"{self.type} {self.sender} → {self.to}"


class PeerSubscription(models.Model):
    """An address of a peer's that this node has subscribed there, once for all who observe it here.

    `is_held`: the peer has said so; until then it is asked.
    """

    peer = models.ForeignKey(Peer, on_delete=models.CASCADE, related_name="subscriptions")
    address = models.CharField(max_length=ADDRESS_LENGTH)
    is_held = models.BooleanField(default=False)
    wanted_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("id",)
        constraints = (
            models.UniqueConstraint(fields=["peer", "address"], name="peer_subscription_once"),
        )

    def __str__(self) -> str:
        return self.address


class LegacyNetwork(Peer):
    """A peer that is no node: a network of another protocol, and how its server is reached."""

    class Network(models.TextChoices):
        """What it speaks."""

        XMPP = "xmpp", "XMPP (component of a server)"
        SIP = "sip", "SIP (behind an outbound proxy)"
        SCRIPT = "script", "what the script of the connector `legacy` speaks"

    class Transport(models.TextChoices):
        """What carries SIP to the outbound proxy."""

        TCP = "tcp", "TCP"
        TLS = "tls", "TLS"
        WS = "ws", "WebSocket"
        WSS = "wss", "WebSocket over TLS"

    network = models.CharField(max_length=16, choices=Network.choices, default=Network.XMPP)
    host = models.CharField(
        max_length=253, blank=True, help_text="Where its server is; a script knows itself."
    )
    port = models.PositiveIntegerField(
        default=5347,
        validators=(MinValueValidator(1), MaxValueValidator(65_535)),
        help_text="Where the server takes components, or the proxy flows.",
    )
    transport = models.CharField(
        max_length=8, choices=Transport.choices, default=Transport.TCP, db_default=Transport.TCP,
        help_text="Of SIP.",
    )  # fmt: skip
    component = models.CharField(
        "domain of the gateway",
        max_length=253,
        blank=True,
        help_text="As the server knows it, such as gw.example.org. SIP may do without: then "
        "addresses are lent to all users.",
    )
    media = models.CharField(
        "rtpengine", max_length=300, blank=True, default="", db_default="",
        help_text="Of SIP: host:port where rtpengine is told of calls. Empty: media pass as they "
        "are described.",
    )  # fmt: skip
    sealed = models.TextField("secret, encrypted", editable=False)
    wants_receipts = models.BooleanField(
        "asks for receipts",
        default=False,
        help_text="A message is then answered when it was received, or after five seconds.",
    )
    pool = models.PositiveSmallIntegerField(
        "addresses to lend",
        default=0,
        validators=(MaxValueValidator(1_000),),
        help_text="To those who have none there. 0: they cannot write there.",
    )
    per_minute = models.PositiveIntegerField(
        "messages a minute",
        default=20,
        validators=(MinValueValidator(1), MaxValueValidator(1_000_000)),
        help_text="That one user of the network may send to this node.",
    )
    trusted = models.BooleanField(
        "says who its users are",
        default=False,
        db_default=False,
        help_text="Of XMPP: what its server says of who writes is a verified identity here.",
    )

    class Meta:
        verbose_name = "legacy network"
        verbose_name_plural = "legacy networks"
        ordering = ("domain",)


class LegacyAddress(models.Model):
    """What the gateway to a network has to know after its worker has died.

    A contact: who there has subscribed the presence of which user here. An address that is lent:
    the runtime that has it, and the name of the address. A call: who here is in it, with whom.
    Media: what the ids of a worker's calls at rtpengine begin with, and where that listens.
    """

    class Kind(models.TextChoices):
        """What `here` and `there` are."""

        CONTACT = "contact", "who sees whether a user is there"
        LENT = "lent", "address that is lent"
        CALL = "call", "call that is live"
        MEDIA = "media", "calls at rtpengine"

    network = models.ForeignKey(LegacyNetwork, on_delete=models.CASCADE, related_name="addresses")
    kind = models.CharField(max_length=16, choices=Kind.choices)
    here = models.CharField(max_length=ADDRESS_LENGTH)
    there = models.CharField(max_length=ADDRESS_LENGTH)

    class Meta:
        ordering = ("id",)
        constraints = (
            models.UniqueConstraint(
                fields=["network", "kind", "here", "there"], name="legacy_address_once"
            ),
        )

    def __str__(self) -> str:
        return f"{self.here} {self.there}"
