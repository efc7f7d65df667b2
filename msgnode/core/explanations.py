"""The table of every error code, close code and alarm: what it means, what to do. Pure, data only.

The node serves each as a page (msgnode/web/explained.py), to which the `type` of problem details,
the console and Prometheus alerts link; the documentation has them all on one page. A test compares
the table with what the code raises, closes with and answers, hence the length of this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Explanation(NamedTuple):
    """One page.

    Attributes:
        title: what has happened, in a few words.
        meaning: when and why it happens.
        remedy: what the reader can do about it.
    """

    title: str
    meaning: str
    remedy: str


class HttpError(NamedTuple):
    """The page of an error code, and the last segment of its URL."""

    name: str
    explanation: Explanation


ERRORS: Mapping[int, HttpError] = {
    400: HttpError("bad-request", Explanation(
        "The request cannot be read",
        "The frame or the body violates the protocol: it is not JSON, a field is missing or has "
        "the wrong type, an address is not valid, or a key occurs twice.",
        "Correct what the text of the error (`description`, `detail` or `errors`) names. Nothing "
        "has changed, and the same request will fail again.",
    )),
    401: HttpError("not-identified", Explanation(
        "Nobody is logged in, or there is no session",
        "Over a WebSocket: the connection has not sent `open` yet, or the node requires an "
        "identity (ADMISSION) and the message has no valid one. Over HTTP: credentials are "
        "missing, expired or revoked.",
        "Send `open` first, or get a new token from an issuer that the node accepts. Over HTTP, "
        "send the credentials of an account or an API key. Operators: the accepted issuers are "
        "listed under Issuers.",
    )),
    403: HttpError("forbidden", Explanation(
        "The sender may not do this",
        "The `from` belongs to somebody else, the address or entry belongs to another session, a "
        "policy refuses the message, a ban applies, or the account lacks the permission.",
        "Send from an address of your own runtime. Operators: the decision log shows which rule "
        "refused, and Bans and Groups show who is banned and which permissions accounts have.",
    )),
    404: HttpError("not-found", Explanation(
        "Not found",
        "Nobody listens to the address, or there is no entry with this id: it never existed, its "
        "session has ended, or it was purged.",
        "Check the address. Look the recipient up in the registry again, because a runtime gets "
        "new addresses when it returns without its session.",
    )),
    405: HttpError("method-not-allowed", Explanation(
        "The resource does not support the method",
        "The resource does not support the HTTP method of the request.",
        "Use a method that the header `Allow` names; /api/docs describes them.",
    )),
    406: HttpError("not-acceptable", Explanation(
        "There is no acceptable representation",
        "The header `Accept` names only media types that the node does not produce.",
        "Accept application/json.",
    )),
    408: HttpError("unavailable-hyperties", Explanation(
        "The hyperties that match are not available now",
        "A search of the registry found hyperties, but all of them are disconnected. An operator "
        "can change this code to 500 for older runtimes (REGISTRY_UNAVAILABLE_CODE).",
        "Subscribe to changes of the registration and wait until a hyperty is available again.",
    )),
    409: HttpError("conflict", Explanation(
        "The request conflicts with the current state",
        "The connection already has a session, the address is taken, or somebody else has changed "
        "the entry in the meantime.",
        "Read the current state and decide again. Do not repeat the request unchanged.",
    )),
    410: HttpError("gone", Explanation(
        "The resource has ended permanently",
        "Its owner has revoked or ended it, or it has expired.",
        "It cannot be restored. Its owner may create another.",
    )),
    412: HttpError("changed", Explanation(
        "The resource has changed",
        "`If-Match` or `If-None-Match` does not fit the current state of the resource.",
        "Read the resource again, decide again, and send its new `ETag`.",
    )),
    413: HttpError("too-large", Explanation(
        "The body is too large",
        "The body of the HTTP request is larger than MAX_REQUEST_BYTES, or than the limit of this "
        "resource (256 KiB in a registry, MAX_FRAME_BYTES, 100 messages of a device).",
        "Send less in one request.",
    )),
    415: HttpError("unsupported-media-type", Explanation(
        "The body has an unsupported type",
        "The header `Content-Type` is not JSON.",
        "Send application/json.",
    )),
    421: HttpError("misdirected", Explanation(
        "The request reached the wrong worker",
        "A worker's own probe has reached another worker. Clients never get this code.",
        "Operators: make sure that only the node's workers use its internal port.",
    )),
    422: HttpError("key-reused", Explanation(
        "The Idempotency-Key was used with another body",
        "The device has sent another request with this key within the last ten minutes.",
        "Use a new key for each request. Use the same key only to repeat a request.",
    )),
    429: HttpError("too-many", Explanation(
        "A limit is reached",
        "The session, the source address, the subject or the client has reached a limit of size, "
        "number or rate.",
        "Wait as long as `Retry-After` says, or free what you no longer need. Operators: the text "
        "names the limit; its setting is listed under Limits in docs/operations.md.",
    )),
    500: HttpError("internal", Explanation(
        "Internal error of the node",
        "An unexpected error occurred in the node. The cause is in its log, not in the answer.",
        "Tell the operator. Operators: the log has a traceback at this time. Repeated faults raise "
        "the alarm faults-repeat.",
    )),
    501: HttpError("not-supported", Explanation(
        "Not supported by the other network",
        "The recipient is in a legacy network, which has nothing like this message.",
        "Send what the network has: docs/legacy.md lists it.",
    )),
    502: HttpError("bad-gateway", Explanation(
        "Another server gave no valid answer",
        "An external registry, an issuer or the node of another domain sent an invalid answer.",
        "Try again later. Operators: Components and stubs shows which of them it was.",
    )),
    503: HttpError("unavailable", Explanation(
        "The node cannot handle the request now",
        "The recipient is disconnected and its queue is full, a pool of addresses is empty, the "
        "database cannot be reached or its disk is full, or the worker has reached a limit or lost "
        "its lease.",
        "Try again later, with increasing pauses. Operators: /health/ready and the alarms show the "
        "cause.",
    )),
    504: HttpError("timeout", Explanation(
        "No answer in time",
        "A component, an external registry or another domain did not answer within 14 seconds.",
        "The request may have been carried out. Check before you repeat a request that must not be "
        "carried out twice.",
    )),
}  # fmt: skip

CLOSE_CODES: Mapping[int, Explanation] = {
    1000: Explanation(
        "Closed normally",
        "The runtime has sent `close`. Or it is a visitor, and its visit is over because it was "
        "idle too long or reached its longest duration. The session has ended, and its addresses "
        "and subscriptions are free.",
        "Nothing. To continue, open a new session.",
    ),
    1002: Explanation(
        "A frame violates RFC 6455",
        "The client sent a reserved opcode or bit, a frame without a mask, a control frame that is "
        "fragmented or too long, a fragment out of order, a compressed frame, or a close code that "
        "must not be sent.",
        "Reconnect with `re-open`. The client's WebSocket library, or a proxy on the way, has a "
        "fault.",
    ),
    1007: Explanation(
        "A text is not UTF-8",
        "A text frame, or the reason in a close frame, is not valid UTF-8.",
        "Reconnect with `re-open`, and send UTF-8.",
    ),
    3001: Explanation(
        "Reconnect",
        "The node, or the worker that serves this connection, stops or restarts: an upgrade, a "
        "restart, a lost lease. The session is kept, unless the database committed a change of it "
        "too late, after the change had been refused.",
        "Reconnect with `re-open` after a short random pause, and with `open` if there is no such "
        "session. Messages that arrive meanwhile wait; lost messages are signalled as a gap.",
    ),
    3008: Explanation(
        "The client reads too slowly",
        "The client did not read, and more than OUTBOX_BYTES waited for it. Messages were lost.",
        "Reconnect with `re-open`; a gap is signalled. Read faster, or subscribe to less.",
    ),
    4401: Explanation(
        "Not identified",
        "No session was opened within HANDSHAKE_TIMEOUT, no identity was shown within "
        "IDENTIFY_TIMEOUT, the token of the upgrade is not valid, or the identity was revoked.",
        "Log in again, and reconnect with `open` and a valid token.",
    ),
    4403: Explanation(
        "Refused",
        "A ban applies, the page's origin is not one of WS_ORIGINS, or an operator has ended the "
        "session.",
        "Do not reconnect automatically. Ask the operator, who finds the reason under Bans and in "
        "the audit log.",
    ),
    4409: Explanation(
        "Resumed on another connection",
        "The session was resumed on a newer connection: with its token or, where RESUME permits "
        "it, with its runtime URL.",
        "Nothing, if this was intended. Do not reconnect, or the two connections would close each "
        "other in turn.",
    ),
    4413: Explanation(
        "A frame was too large",
        "The frame was larger than MAX_FRAME_BYTES, and the node has not read it.",
        "Reconnect with `re-open`, but do not send that frame again: send its content in parts or "
        "in another way.",
    ),
    4429: Explanation(
        "A limit is reached",
        "A limit of sessions or connections is reached, or the runtime URL may still be in use.",
        "Reconnect after a while. Operators: docs/operations.md lists the limits.",
    ),
}

ALARMS: Mapping[str, Explanation] = {
    "path-broken": Explanation(
        "A worker's probe was not answered",
        "A worker's probe through its own port, pipeline and database, or to another worker over "
        "their link, was not answered within PROBE_TIMEOUT. Meanwhile the worker is not ready.",
        "Look at its log and at /health/ready, which names the check. The usual causes are the "
        "database, Redis, or an overloaded machine. The alarm clears itself.",
    ),
    "turn-down": Explanation(
        "A TURN server does not answer",
        "In two checks in a row, the server answered neither at its command line interface nor to "
        "STUN. Nothing new is reserved there. Existing reservations count as lost, and their "
        "owners are notified.",
        "Check that the process runs and is not stopped, and that the node reaches the address of "
        "its command line interface and of its first URL. The alarm clears itself.",
    ),
    "turn-full": Explanation(
        "No TURN server has room for a class",
        "The reservations on the servers for this traffic class leave room for less than one more "
        "flow. New reservations are answered 503; existing ones are not affected.",
        "End reservations that are not needed, raise the capacity of a server to that of its link, "
        "or add a server. The alarm clears itself once there is room.",
    ),
    "qos-accounting-gap": Explanation(
        "The traffic of TURN servers is not counted",
        "The Redis that they share with the node (QOS_TURN_REDIS_URL) cannot be reached. Calls "
        "continue, but new secrets are not shared, and the usage of this time is marked "
        "incomplete.",
        "Start that Redis again. Flows that end afterwards are counted to the byte by their "
        "totals. The alarm clears itself.",
    ),
    "faults-repeat": Explanation(
        "One part fails repeatedly",
        "A part of the node has failed five times within a minute. Each failure ended only the "
        "session, link or task in which it occurred.",
        "The log has a traceback for each failure. Report it with the version of the node. The "
        "alarm clears itself.",
    ),
    "unclean-stop": Explanation(
        "A worker died",
        "A worker ended without an orderly stop: it was killed, ran out of memory, or lost power. "
        "Its sessions may have missed messages; a gap was signalled to them.",
        "Find out what ended it (the kernel's log names a lack of memory). Clear the alarm.",
    ),
    "gap": Explanation(
        "A session lost messages",
        "The messages that waited for a session exceeded its queue, or were lost with a worker. A "
        "gap was signalled to the runtime.",
        "If this repeats for one runtime, its network or page is slow. If it affects many, raise "
        "OUTBOX_BYTES and GRACE_PERIOD. Clear the alarm.",
    ),
    "queue-budget": Explanation(
        "One source or subject fills the queues",
        "The messages that wait for all its sessions have reached MAX_QUEUE_BYTES_PER_SOURCE. "
        "Further ones are dropped, and a gap is signalled to each session. Others are not "
        "affected.",
        "Look at its sessions under Sessions. Ban it if it does this on purpose; raise the limit "
        "if it is a gateway for many users. Clear the alarm.",
    ),
    "pool-exhausted": Explanation(
        "A pool of addresses is empty",
        "All addresses of the scheme are in use. Requests for one are answered 503.",
        "Add addresses under Address pools. The alarm clears itself when an address is free.",
    ),
    "worker-gap": Explanation(
        "Messages between workers were lost on the way",
        "A worker noticed a gap in the batches from another worker, and requested them again.",
        "A single occurrence is usually a reconnection. If it repeats, check Redis and the "
        "network.",
    ),
    "worker-protocol": Explanation(
        "Two workers speak different protocols",
        "A worker of another version of the node runs beside this one, and their protocols are not "
        "compatible. They do not connect to each other, and the newly started one is not ready.",
        "Bring all workers to one version, as docs/operations.md describes for an upgrade. Clear "
        "the alarm.",
    ),
    "worker-fenced": Explanation(
        "A worker lost its lease",
        "It could not renew its lease within WORKER_TIMEOUT, because it was frozen or cut off from "
        "the database. It closed its sockets and started again; other workers took over its "
        "sessions.",
        "Find out what froze it. Raise WORKER_TIMEOUT if pauses of the machine are expected. Clear "
        "the alarm.",
    ),
    "worker-down": Explanation(
        "A worker sends no heartbeat",
        "No heartbeat came from it for WORKER_TIMEOUT. Messages that it misses are signalled as a "
        "gap.",
        "Start it again, or check the connection between it and Redis. Clear the alarm.",
    ),
    "redis-away": Explanation(
        "A worker does not reach Redis",
        "Redis cannot be reached or refuses the worker; the text says why. The worker continues to "
        "serve its own sessions, but is not ready.",
        "Restore Redis, or correct REDIS_URL. The alarm clears itself.",
    ),
    "redis-full": Explanation(
        "Redis has no memory left",
        "Messages between workers wait at first; later their senders are answered 503.",
        "Raise its maxmemory (LINK_BYTES for each pair of workers is enough). The alarm clears "
        "itself.",
    ),
    "push-refused": Explanation(
        "A push service refuses the node's wake-ups",
        "It answered 400, 401 or 403: the browser subscribed with another key, or SECRET_KEY has "
        "changed since then. Sleeping devices are not woken.",
        "Make pages subscribe with the key of /device/v1/push/key, and check PUSH_CONTACT. Clear "
        "the alarm.",
    ),
    "mqtt-broker-away": Explanation(
        "The MQTT broker cannot be reached",
        "The text says why. Sessions of devices behind it are kept for GRACE_PERIOD, and messages "
        "for them wait. Data objects of sensors keep their last value. The broker keeps the "
        "messages that it has acknowledged.",
        "Restore the broker, or correct MQTT_URL. The alarm clears itself.",
    ),
    "peer-pending": Explanation(
        "The node of another domain waits for approval",
        "Somebody here has sent a message to that domain, and the node has found its protostub. "
        "The protostub does not run before approval, and such messages are answered 503.",
        "Look at its source under Peers. Approve it, which clears the alarm; or block the domain "
        "and clear the alarm.",
    ),
    "stub-changed": Explanation(
        "A peer offers another protostub, or other keys",
        "The approved protostub continues to run. Keys that are not approved make no link.",
        "Look at the new source under Peers and approve it, which clears the alarm; or ask the "
        "other domain.",
    ),
    "stub-unsigned": Explanation(
        "The approved protostub of a peer is not signed",
        "After the approval, keys were entered or changed, or FEDERATION_SIGNED was set. The stub "
        "does not run, and messages for that domain are answered 502.",
        "Ask the other domain to sign its stub, look for it again under Peers and approve it; or "
        "remove the keys. The alarm clears itself.",
    ),
    "stub-failing": Explanation(
        "The protostub of a peer fails repeatedly",
        "The text says why. The node starts it again after increasing pauses. Requests to that "
        "domain are answered 503 or 504.",
        "Look at the peer's last error. Pause the peer, or ask the other domain. The alarm clears "
        "itself.",
    ),
    "peer-stuck": Explanation(
        "Messages for another domain are not delivered",
        "The text says why. Requests to that domain are answered 503 or 504. A gap is signalled to "
        "its observers here once it can be reached again.",
        "Look at the waiting messages; try them again or discard them. Under Peers, restart its "
        "stub, look for its stub again, or pause the peer; under Legacy networks, connect anew or "
        "pause the network. Or ask the other domain. The alarm clears itself.",
    ),
    "peer-loop": Explanation(
        "A peer returns messages that were sent to it",
        "These messages are counted and not forwarded. This happens if another node takes this "
        "domain for that of somebody else, or if two nodes are visitors of each other.",
        "Ask the other domain, and pause the peer meanwhile. Clear the alarm once this is solved.",
    ),
    "peer-spoofs": Explanation(
        "A peer sends messages from addresses of this domain",
        "These messages are counted and not forwarded.",
        "Block the peer unless the other domain can explain it. Clear the alarm once this is "
        "solved.",
    ),
    "message-set-aside": Explanation(
        "A stored message for another domain was not delivered",
        "The message expired, or the connection to the peer ended each time the node tried to send "
        "it. The sender is notified if it has a session. The message is not tried again; its "
        "addresses are kept for a week.",
        "Look at it under Stored messages. The sender may send it again. Clear the alarm.",
    ),
    "sandbox-missing": Explanation(
        "Federation is on, but Deno is missing",
        "The node needs Deno to run the protostubs of peers. Messages to other domains are "
        "refused.",
        "Run pip install 'messaging-node[federation]' and restart the node. The alarm clears "
        "itself.",
    ),
    "script-failed": Explanation(
        "The script of a connector fails",
        "The text says why: it has ended five times within ten minutes and is not started any "
        "more, answers what it must not, or a new version cannot be loaded and the earlier one "
        "goes on. Requests to a connector whose script does not run are answered 503.",
        "Look at its last error under Connectors. Go back to an earlier version, or restart it, "
        "which clears the alarm.",
    ),
    "issuer-out-of-reach": Explanation(
        "An issuer's keys cannot be fetched",
        "Known keys remain valid for a day. Tokens signed with newer keys are refused.",
        "Check that this machine can reach the issuer. If this takes long, enter its keys under "
        "Issuers. The alarm clears itself.",
    ),
    "secrets-unreadable": Explanation(
        "Encrypted secrets cannot be read",
        "SECRET_KEY or KEY_ENCRYPTION_KEY was changed, and the former one is not in "
        "SECRET_KEY_FALLBACKS. What needs the secrets fails: the provider cannot sign, issuers "
        "refuse introspection, stored messages are not sent.",
        "Name the former key in SECRET_KEY_FALLBACKS, restart, and run manage.py secret_key "
        "--encrypt-anew. If that key is lost: manage.py provider_key --replace-now, and enter the "
        "other secrets again. The alarm clears itself at the next start.",
    ),
    "legacy-refused": Explanation(
        "A legacy network does not admit the gateway",
        "Its server refuses the secret of the gateway, so nothing passes in either direction. It "
        "is tried again every five minutes.",
        "Compare the secret under Legacy networks with that of the server. The alarm clears "
        "itself.",
    ),
    "legacy-pool-empty": Explanation(
        "Few addresses of a legacy network are left to be lent",
        "Nine tenths of the addresses for those who are not logged in are used. When none is "
        "left, their messages to the network are refused with 503.",
        "Make the pool larger under Legacy networks, or find out who uses it; then clear the "
        "alarm.",
    ),
    "legacy-media": Explanation(
        "The media of calls with a legacy network cannot be changed",
        "The rtpengine that is named under Legacy networks does not answer, so calls with the "
        "network are refused with 503. Messages pass.",
        "Start rtpengine, or correct its place under Legacy networks; then clear the alarm.",
    ),
    "legacy-posing": Explanation(
        "Somebody in a legacy network claims an address of this node",
        "A request came from the network whose sender says that he is a user of this node, or has "
        "an address that it lends. It was refused with 403.",
        "Have the proxy ask for a password from who claims these addresses (docs/legacy.md); then "
        "clear the alarm.",
    ),
    "issuer-without-usable-key": Explanation(
        "No key of an issuer can be used",
        "Its key set was read, but none of its keys can verify a signature by one of the "
        "issuer's algorithms; the text says why for each. All its tokens are refused.",
        "Compare the algorithms under Issuers with those of the issuer's keys. If its key set is "
        "at fault, enter its keys under Issuers. The alarm clears itself.",
    ),
    "policy-indeterminate": Explanation(
        "A policy could not be evaluated",
        "A rule needs an attribute that the message does not have, or the rule fails. Such "
        "messages are refused unless POLICY_DELIVER_INDETERMINATE is true.",
        "The decision log names the rules. Try the message in the playground. Clear the alarm.",
    ),
    "record-not-written": Explanation(
        "The traffic record is not written",
        "Its disk is full, its location cannot be written, or it has reached RECORD_MAX_BYTES. "
        "Rows wait in memory; if there are too many, they are lost and counted. Messages are still "
        "delivered.",
        "Make room, or lower RECORD_RAW_DAYS. The alarm clears itself.",
    ),
    "record-damaged": Explanation(
        "Files of the record were left out of a report",
        "The files cannot be read, or lack rows that the ledger lists. The report says that it is "
        "incomplete.",
        "Restore the files from a backup, or accept the report as it is. Clear the alarm.",
    ),
    "record-not-compacted": Explanation(
        "The small files of an hour were not merged",
        "Spark could not write to the record, for example because its disk is full. Reports are "
        "created and correct, but take longer the more files there are.",
        "The text says what failed. The alarm clears itself with the next successful run.",
    ),
    "background-stopped": Explanation(
        "Celery's worker or beat does not run",
        "Reports, purges, notices and the expiry of registrations wait for it; the node carries "
        "messages as before. `/health/ready` says `jobs: false`.",
        "The text has the last line of its log, and names the log. It is started again by itself, "
        "each time a little later; the alarm clears itself when it runs.",
    ),
    "record-uncounted": Explanation(
        "Traffic was deleted that no report has counted",
        "Rows were too old, or the record was near RECORD_MAX_BYTES, and no run had rolled them "
        "up: for days, runs were not started or failed.",
        "Look at Runs in the console. The deleted rows are in no report. Clear the alarm.",
    ),
    "clock-jumped": Explanation(
        "The clock of a machine has jumped ahead",
        "It shows a time days later than at the previous check: nothing ran there for so long, or "
        "the clock is wrong. Until it has run for a week, nothing more is deleted for its age.",
        "Check the machine's clock and what sets it. If it is right, nothing need be done; the "
        "text says how to make the node accept it at once. The alarm clears itself.",
    ),
    "threshold": Explanation(
        "The limit of an alarm rule is passed",
        "A figure of the node has been beyond the limit of an alarm rule for the time that the "
        "rule sets. The subject is the name of the rule.",
        "The text says what to look at. The rule is under Alarm rules. The alarm clears itself.",
    ),
    "notice-failed": Explanation(
        "A notice of an alarm could not be sent",
        "A mail or a webhook of an alarm rule failed eight times over an hour; the text says why.",
        "Check EMAIL_URL, or whether the webhook answers, and test the rule under Alarm rules. The "
        "alarm clears itself when a notice to that recipient succeeds.",
    ),
    "reports-late": Explanation(
        "A report is late",
        "It should be finished by now: the Celery worker or beat does not run, or Spark fails.",
        "Look at Runs in the console, and at the logs of worker and beat. The alarm clears itself.",
    ),
}
