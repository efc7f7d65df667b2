"""The nodes of other domains: list them, add one, decide about one."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import json
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.management.base import CommandParser
from django.utils import timezone

from msgnode.console import peer_actions, whereabouts
from msgnode.console.command_base import (
    Tool,
    could_not_be_done,
    not_as_it_should_be,
    read_file,
)
from msgnode.federation import (
    descriptor,
    discovery,
    kinds,
    link_keys,
    link_trial,
    monitoring,
    sockets,
    store,
)
from msgnode.federation.descriptor import FoundStub
from msgnode.federation.link_socket import OwnNode, keys_of_this_node
from msgnode.federation.link_trial import Finding
from msgnode.federation.states import IDLE, LIVE
from msgnode.models import LegacyNetwork, Peer
from msgnode.models.federation import RATE
from msgnode.net.http import HttpClient

_BY = "command line"
_ACTIONS = ("list", "add", *peer_actions.ACTIONS, "stubs", "queue", "where", "retry", "test-link")


class Command(Tool):
    help = (
        "List or manage the peers of this node, which are the nodes of other domains: add a peer, "
        "approve the stub that was found, block, pause or resume the peer, restart its stub, look "
        "for its stub again, list the stubs that it has offered, or remove it. Try the link to it "
        "(test-link), and say in words what would fail. List the messages "
        "that wait for it (queue), find one message (where), and send waiting messages again "
        "(retry) or discard them. A running node applies changes within seconds. A list exits "
        "with status 1 if a peer waits for approval, or is approved but neither live nor idle."
    )
    example = (
        "  manage.py peers\n"
        "  manage.py peers add b.example --url https://node.b.example\n"
        "  manage.py peers add legacy.example --xmpp 127.0.0.1:5347 --component gw.legacy.example "
        "--secret secret.txt\n"
        "  manage.py peers add sip.example --sip 127.0.0.1:5060 --pool 20 --secret secret.txt\n"
        "  manage.py peers approve b.example --digest 5f3a…"
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("action", nargs="?", choices=_ACTIONS, default="list")
        parser.add_argument("domain", nargs="?", default="")
        parser.add_argument("--url", default="", help="URL of its node (default: https://<domain>)")
        parser.add_argument(
            "--keys",
            help="file with the public keys (JWK set) with one of which its stub must be signed; "
            "'' for none. Without this option, an existing peer keeps its keys",
        )
        parser.add_argument(
            "--stub",
            help="add: file with the script of its stub, for a peer whose node has no catalogue",
        )
        parser.add_argument(
            "--config",
            default="",
            help="add --stub: configuration of the stub, as JSON or the name of a file with it, "
            'such as {"url": "wss://node.b.example/ws"}',
        )
        parser.add_argument(
            "--kind",
            choices=[*filter(None, Peer.Kind.values), "guessed"],
            help="kind of its node (default: guessed from its stub)",
        )
        parser.add_argument(
            "--visitors",
            choices=[*filter(None, Peer.Visitors.values), "as-kind"],
            help="whether its runtimes may come as visitors beside its node",
        )
        self._add_network_arguments(parser)
        parser.add_argument("--hosts", default="", help="additional hosts its stub may connect to")
        parser.add_argument(
            "--messages-per-second",
            type=int,
            help=f"add: messages a second, each way (default: {RATE})",
        )
        parser.add_argument(
            "--vouches", choices=["yes", "no"],
            help="add: whether its node is believed, over a link, who its users are (default: no)",
        )  # fmt: skip
        parser.add_argument(
            "--messages",
            type=int,
            nargs="+",
            help="ids of messages to retry or discard (default: all)",
        )
        parser.add_argument("--id", default="", help="where: id of the message to find")
        parser.add_argument(
            "--digest",
            default="",
            help="approve: digest of the stub, or its beginning; the stub that was found, or an "
            "earlier one to return to",
        )

    def _add_network_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--xmpp",
            help="add: HOST:PORT where the server of an XMPP network takes components",
        )
        parser.add_argument(
            "--trusted", action="store_true",
            help="--xmpp: what its server says of who writes is a verified identity",
        )  # fmt: skip
        parser.add_argument(
            "--by-script", action="store_true",
            help="add: an access network that the script of the connector `legacy` speaks to",
        )  # fmt: skip
        parser.add_argument("--sip", help="add: HOST:PORT of the outbound proxy of a SIP network")
        parser.add_argument(
            "--transport", choices=LegacyNetwork.Transport.values, default="tcp",
            help="--sip: what carries it to the proxy",
        )  # fmt: skip
        parser.add_argument(
            "--media", default="", help="--sip: HOST:PORT where rtpengine is told of calls"
        )
        parser.add_argument(
            "--component", default="", help="--xmpp, --sip: domain of the gateway there"
        )
        parser.add_argument(
            "--secret", default="",
            help="--xmpp: file with the secret that the server was told; --sip: with the password "
            "of the accounts, where {user} stands for the name of each",
        )  # fmt: skip
        parser.add_argument("--receipts", action="store_true", help="--xmpp: ask for receipts")
        parser.add_argument(
            "--pool",
            type=int,
            default=0,
            help="--xmpp, --sip: addresses lent to who has none there",
        )
        parser.add_argument(
            "--per-minute",
            type=int,
            default=20,
            help="--xmpp, --sip: messages of one user there a minute",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        if settings.FEDERATION == "off":
            self.stderr.write("FEDERATION is off, so no message is sent to other domains.")
        action, domain = options["action"], options["domain"].lower()
        if action == "list":
            self._list()
            return
        if not domain:
            raise could_not_be_done(f"Which domain? manage.py peers {action} example.org")
        if action == "add":
            is_network = options["xmpp"] or options["sip"] or options["by_script"]
            (self._add_network if is_network else self._add)(domain, options)
            return
        peer = Peer.objects.filter(domain=domain).first()
        if peer is None:
            raise could_not_be_done(f"There is no peer {domain}.")
        shown = {
            "stubs": self._stubs,
            "queue": self._queue,
            "where": self._where,
            "test-link": self._test,
        }
        if action in shown:
            shown[action](peer, options)
        elif action == "retry" or options["messages"] is not None:
            self._order(peer, action, options["messages"])
        else:
            self._act(action, peer, options["digest"])

    def _act(self, action: str, peer: Peer, digest: str) -> None:
        done = peer_actions.act(action, peer, _BY, digest)
        self.stdout.write(done + (" Does it? manage.py peers" if action == "approve" else ""))

    def _add(self, domain: str, options: dict[str, Any]) -> None:
        row = {"domain": domain, "url": options["url"], "hosts": options["hosts"]}
        if options["keys"] is not None:
            row["keys"] = read_file(options["keys"], "--keys") if options["keys"] else ""
        if options["kind"]:
            row["kind"] = options["kind"].replace("guessed", "")
        if options["messages_per_second"] is not None:
            row["messages_per_second"] = options["messages_per_second"]
        if options["vouches"]:
            row["vouches"] = options["vouches"] == "yes"
        if options["visitors"]:
            row["visitors"] = options["visitors"].replace("as-kind", "")
        try:
            row = peer_actions.cleaned(row)
        except ValidationError as wrong:
            faults = (
                f"--{name.replace('_', '-')}: {' '.join(why)}"
                for name, why in wrong.message_dict.items()
            )
            raise could_not_be_done(" ".join(faults)) from None
        given = _given(options) if options["stub"] else None
        if given is not None:
            hosts = discovery.hosts_of(domain, row["url"], frozenset(row["hosts"].lower().split()))
            networks = [ipaddress.ip_network(each) for each in settings.FEDERATION_NETWORKS]
            if fault := sockets.socket_fault(given.url, hosts, networks):
                raise could_not_be_done(f"--config: {given.url or 'no url'}: {fault}.")
        peer_actions.save(Peer.objects.filter(domain=domain).first() or Peer(), row)
        if given is not None:
            if why := store.give(domain, given):
                raise not_as_it_should_be(why)
            told = f"{domain}: the stub {given.digest[:12]}, of a node of the kind {given.kind}"
            self.stdout.write(f"{told}; then: manage.py peers approve {domain}")
            return
        self.stdout.write(
            f"{domain}: its stub is looked for; then: manage.py peers approve {domain}"
        )

    def _add_network(self, domain: str, options: dict[str, Any]) -> None:
        """Add a legacy network, or change what is said of one."""
        from msgnode.legacy import rows as legacy_rows  # loaded with the first network

        kinds = LegacyNetwork.Network
        network = kinds.SIP if options["sip"] else kinds.XMPP
        host, _, port = (options["sip"] or options["xmpp"] or ":1").rpartition(":")
        network = kinds.SCRIPT if options["by_script"] else network
        secret = read_file(options["secret"], "--secret").strip() if options["secret"] else ""
        said = legacy_rows.as_stored({
            "domain": domain, "network": network, "host": host,
            "transport": options["transport"], "media": options["media"],
            "port": int(port) if port.isdigit() else 0, "component": options["component"],
            "wants_receipts": options["receipts"], "pool": options["pool"],
            "per_minute": options["per_minute"], "trusted": options["trusted"],
        })  # fmt: skip
        row = LegacyNetwork.objects.filter(domain=domain).first()
        wrong = legacy_rows.faults({**said, "secret": secret}, row)
        row = row or LegacyNetwork(domain=domain)
        for name, value in said.items():
            setattr(row, name, value)
        try:
            row.clean_fields(exclude=["sealed"])
        except ValidationError as error:
            wrong = {**{name: text[0] for name, text in error.message_dict.items()}, **wrong}
        if wrong:
            told = "; ".join(f"{name}: {text}" for name, text in wrong.items())
            raise could_not_be_done(f"{domain} cannot be added: {told}")
        legacy_rows.save(row, secret)
        self.stdout.write(f"{domain}: it is connected to; whether it is live: manage.py peers")

    def _stubs(self, peer: Peer, _options: dict[str, Any]) -> None:
        found = store.stubs_of(peer)
        if self.as_json:
            self._say_all("StubLine", found)
            return
        if not found:
            self.stdout.write(
                f"{peer.domain} has offered no stub yet: {peer.discovery or 'looking'}"
            )
        for each in found:
            marks = ("approved", peer.approved_digest), ("found last", peer.found_digest)
            told = ", ".join(word for word, digest in marks if digest == each["digest"])
            signed = f"signed by {each['signed_by']}" if each["signed_by"] else ""
            text = f"{each['digest']} {each['found_at']:%Y-%m-%d %H:%M} {each['version'] or '-':10}"
            self.stdout.write(f"{text} {told} {signed}".rstrip())

    def _queue(self, peer: Peer, _options: dict[str, Any]) -> None:
        rows = monitoring.waiting().filter(peer=peer).order_by("id")
        if self.as_json:
            self._say_all("MessageLine", rows)
            return
        for row in rows:
            waits = (timezone.now() - row.since).total_seconds()
            self.stdout.write(f"{row.pk:8} {waits:5.0f} s {row.kind:10} {row.size:9,} B  {row}")

    def _where(self, peer: Peer, options: dict[str, Any]) -> None:
        id_ = options["id"]
        if not id_:
            raise could_not_be_done("Which message? --id names it.")
        try:
            found = whereabouts.where(peer, id_)
        except OSError as error:
            raise could_not_be_done(f"The traffic record cannot be read: {error}") from None
        if not (found or self.as_json):
            raise not_as_it_should_be(
                f"Of {peer.domain}, no message {id_} waits, or has passed lately."
            )
        told = [each._asdict() for each in found]
        line = "{at:%Y-%m-%d %H:%M:%S} {stage:9} {type} {sender} → {to}  {text}"
        self.say(told, (line.format(**each).rstrip() for each in told))

    def _test(self, peer: Peer, _options: dict[str, Any]) -> None:
        found = [_decided(peer), *asyncio.run(_tried(peer))]
        lines = (
            f"{'ok' if each.is_good else 'WRONG':6}{each.what:10}{each.text}" for each in found
        )
        self.say([each._asdict() for each in found], lines)
        if not all(each.is_good for each in found):
            raise not_as_it_should_be(f"The link to {peer.domain} does not come about so.")

    def _order(self, peer: Peer, action: str, ids: list[int] | None) -> None:
        kind = monitoring.RETRY if action == "retry" else monitoring.DISCARD
        done, left = peer_actions.order_of(kind, peer, ids, _BY)
        if left:
            raise not_as_it_should_be(f"Of {peer.domain} wait no more: {left}.")
        self.stdout.write(f"{peer.domain}: {action} done, {len(done)} messages.")

    def _say_all(self, line: str, rows: Any = None) -> None:
        """Write rows, by default all peers, as REST does: it takes a third of a second to load."""
        from msgnode.console import peers_api

        found = peers_api.PeerViews.queryset.all() if rows is None else rows
        self.say_json(getattr(peers_api, line)(found, many=True).data)

    def _list(self) -> None:
        peers = list(Peer.objects.all())
        networks = dict(LegacyNetwork.objects.values_list("pk", "network"))
        if self.as_json:
            self._say_all("PeerLine")
        else:
            for peer in peers:
                digest = (peer.approved_digest or peer.found_digest)[:12] or "no stub"
                digest = networks.get(peer.pk, digest)
                self.stdout.write(
                    f"{peer.domain:30} {peer_actions.decision_word(peer):20} "
                    f"{peer.state or '-':14} {digest}  {peer.last_error or peer.discovery}".rstrip()
                )
        wrong = [peer.domain for peer in peers if _is_wrong(peer)]
        if wrong:
            raise not_as_it_should_be(f"Look at: {', '.join(wrong)}")


def _decided(peer: Peer) -> Finding:
    """Whether a link to the peer is wanted here."""
    if peer.decision != Peer.Decision.APPROVED:
        return Finding(False, "decision", f"{peer_actions.decision_word(peer)} here")
    if peer.kind not in ("", kinds.OURS):
        return Finding(False, "decision", f"its kind is {peer.kind}, which is left to its stub")
    return Finding(True, "decision", "approved here")


async def _tried(peer: Peer) -> list[Finding]:
    networks = [ipaddress.ip_network(each) for each in settings.FEDERATION_NETWORKS]
    http = HttpClient(networks, link_trial.SECONDS, link_keys.MAX_DOCUMENT)
    own = OwnNode(
        settings.DOMAIN, keys_of_this_node(), int(settings.NODE["MAX_FRAME_BYTES"]), networks
    )
    keys = json.loads(peer.node_keys or "{}")
    try:
        return [each async for each in link_trial.tried(own, http, peer.domain, peer.url, keys)]
    finally:
        await http.close()


def _given(options: dict[str, Any]) -> FoundStub:
    """The stub in a file, with the descriptor that a catalogue would have for it."""
    configuration = options["config"].strip()
    try:
        content = Path(options["stub"]).read_bytes()
        if not configuration.startswith("{"):
            configuration = Path(configuration).read_text() if configuration else "{}"
        version = hashlib.sha256(content).hexdigest()[:12]
        fields = {"language": "javascript", "version": version, "configuration": configuration}
        return descriptor.read(json.dumps(fields).encode(), content)
    except (OSError, ValueError) as error:
        raise could_not_be_done(f"--stub or --config cannot be read: {error}") from None
    except descriptor.BadDescriptor as error:
        raise could_not_be_done(f"--stub, --config: {error}") from None


def _is_wrong(peer: Peer) -> bool:
    if peer.decision == Peer.Decision.APPROVED:
        return peer.state not in (LIVE, IDLE)
    return peer.decision == Peer.Decision.PENDING
