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
        "The frame or the body is not what the protocol asks for: not JSON, a field missing or of "
        "the wrong kind, an invalid address, a duplicate key.",
        "Correct what the text (`description`, `detail` or `errors`) names. Nothing has changed, "
        "and the same request will fail again.",
    )),
    401: HttpError("not-identified", Explanation(
        "Nobody is logged in, or there is no session",
        "Over a WebSocket: the connection has not sent `open` yet, or the node asks for an "
        "identity (ADMISSION) and the message has no valid one. Over HTTP: credentials are "
        "missing, expired or revoked.",
        "Send `open` first; get a new token of an issuer that the node accepts; over HTTP send "
        "the credentials of an account or an API key. Operators see the issuers under Issuers.",
    )),
    403: HttpError("forbidden", Explanation(
        "The sender may not do this",
        "The `from` belongs to somebody else, the address or entry to another session, a policy "
        "refuses the message, there is a ban, or the account lacks the permission.",
        "Send as your own runtime. Operators see in the decision log which rule refused, and "
        "under Bans and Groups who is banned or lacks a permission.",
    )),
    404: HttpError("not-found", Explanation(
        "Nothing is there",
        "Nobody listens to the address, or there is no entry with this id: it was never there, its "
        "session has ended, or it was purged.",
        "Check the address; look the receiver up in the registry again, because runtimes get new "
        "addresses when they come back without their session.",
    )),
    405: HttpError("method-not-allowed", Explanation(
        "The resource has no such method",
        "This resource does not support the HTTP method.",
        "The header `Allow` names the supported ones; /api/docs describes them.",
    )),
    406: HttpError("not-acceptable", Explanation(
        "There is no such representation",
        "The header `Accept` names only media types that the node does not produce.",
        "Accept application/json.",
    )),
    408: HttpError("unavailable-hyperties", Explanation(
        "The hyperties found are unavailable",
        "A search of the registry found hyperties, and all of them are disconnected. "
        "REGISTRY_UNAVAILABLE_CODE may make it 500 for older runtimes.",
        "Subscribe to the registration's changes and wait until one comes back.",
    )),
    409: HttpError("conflict", Explanation(
        "The state does not allow it",
        "The connection already has a session, the address is taken, or somebody else has changed "
        "the entry meanwhile.",
        "Read the state again before you decide; do not repeat the request unchanged.",
    )),
    410: HttpError("gone", Explanation(
        "It has ended for good",
        "Its owner has revoked or ended it, or it has expired.",
        "It cannot be restored; its owner may create another.",
    )),
    412: HttpError("changed", Explanation(
        "The precondition failed",
        "`If-Match` or `If-None-Match` does not match the present state.",
        "Read it again, decide again, and send its new `ETag`.",
    )),
    413: HttpError("too-large", Explanation(
        "The body is too large",
        "The body of the HTTP request has more than MAX_REQUEST_BYTES, or exceeds the limit of "
        "this resource (REGISTRY_MAX_BODY_BYTES, MAX_FRAME_BYTES, 100 messages of a device).",
        "Send less at a time.",
    )),
    415: HttpError("unsupported-media-type", Explanation(
        "The media type is not supported",
        "`Content-Type` is not JSON.",
        "Send application/json.",
    )),
    421: HttpError("misdirected", Explanation(
        "The request reached the wrong worker",
        "The node's own probe has reached another worker than its own. No client sees this.",
        "Operators: let only the node's workers use its internal port.",
    )),
    422: HttpError("key-reused", Explanation(
        "The Idempotency-Key was used with another body",
        "A device has sent another request with this key within the last ten minutes.",
        "Use a new key for each request, and the same one only to repeat it.",
    )),
    429: HttpError("too-many", Explanation(
        "A limit is reached",
        "The session, the source address, the subject or the client is at a limit, or sends "
        "requests too often.",
        "Wait as long as `Retry-After` says, or release what is not needed. Operators find the "
        "limit's name in the text and its setting under Limits in docs/operations.md.",
    )),
    500: HttpError("internal", Explanation(
        "The node has a fault",
        "Something has failed that should not. The cause is in the log, not in the answer.",
        "Tell the operator. Operators: the log has a traceback at this time; a fault that repeats "
        "raises the alarm faults-repeat.",
    )),
    502: HttpError("bad-gateway", Explanation(
        "A foreign node or back-end gave no valid answer",
        "A remote registry, an issuer or another domain sent an invalid answer.",
        "Try again later. Operators see under Components and stubs which of them it was.",
    )),
    503: HttpError("unavailable", Explanation(
        "The node cannot do it now",
        "The receiver is away and its queue is full, a pool of addresses is empty, the database is "
        "out of reach or its disk full, or the worker is at its limit or has lost its lease.",
        "Try again later, with growing pauses. Operators: /health/ready and the alarms say what is "
        "out of reach.",
    )),
    504: HttpError("timeout", Explanation(
        "No answer in time",
        "A component, a remote registry or another domain did not answer within ANSWER_TIMEOUT.",
        "It may have been done anyway: check before you repeat what must not be done twice.",
    )),
}  # fmt: skip

CLOSE_CODES: Mapping[int, Explanation] = {
    1000: Explanation(
        "Closed as asked",
        "The runtime has sent `close`, or it is a visitor from another domain that was idle for "
        "too long or has reached its time limit. Its session has ended, and what it held is free.",
        "Nothing. To begin again, open a new session.",
    ),
    1002: Explanation(
        "A frame that violates RFC 6455",
        "A reserved opcode or bit, a frame without mask, a control frame that is fragmented or too "
        "long, an unexpected fragment, compression, or a close code that must not be sent.",
        "Reconnect with `re-open`. The client's WebSocket library, or a proxy, is broken.",
    ),
    1007: Explanation(
        "A text that is not UTF-8",
        "A text frame, or the reason of a closing frame, cannot be decoded.",
        "Reconnect with `re-open`, and send UTF-8.",
    ),
    3001: Explanation(
        "Reconnect",
        "The node, or this worker of it, stops or restarts: an upgrade, a restart, a lost lease. "
        "The session is kept.",
        "Reconnect with `re-open` after a short pause of random length. Messages sent meanwhile "
        "are queued; a loss is signalled as a gap.",
    ),
    3008: Explanation(
        "Too slow",
        "The client did not read, and more than OUTBOX_BYTES were queued for it. Messages were "
        "lost.",
        "Reconnect with `re-open`; a gap is signalled. Read faster, or subscribe to less.",
    ),
    4401: Explanation(
        "Not identified",
        "No session was opened within HANDSHAKE_TIMEOUT, no identity was given within "
        "IDENTIFY_TIMEOUT, the token of the upgrade is invalid, or the identity was revoked.",
        "Log in again, and reconnect with `open` and a valid token.",
    ),
    4403: Explanation(
        "Refused",
        "The client is banned, the page's origin is not one of WS_ORIGINS, or an operator has "
        "ended the session.",
        "Do not reconnect automatically. Ask the operator, who finds the reason under Bans and in "
        "the audit log.",
    ),
    4409: Explanation(
        "Taken up by another connection",
        "The session was resumed on a newer connection with its token, or with the same runtime "
        "URL if that is allowed.",
        "Nothing, if it was you. Do not reconnect: the two would displace each other in turns.",
    ),
    4413: Explanation(
        "A frame was too large",
        "It had more than MAX_FRAME_BYTES. It was not read.",
        "Reconnect with `re-open`, but do not send that frame again: send it in parts, or "
        "otherwise.",
    ),
    4429: Explanation(
        "Full",
        "A limit of sessions or connections is reached, or the runtime URL may still be in use.",
        "Reconnect after a while. Operators see the limits in docs/operations.md.",
    ),
}

ALARMS: Mapping[str, Explanation] = {
    "path-broken": Explanation(
        "A worker's message to itself gets lost",
        "A worker's probe through its own port, pipeline and database, or to another worker over "
        "their link, was not answered within PROBE_TIMEOUT. The worker is not ready meanwhile.",
        "Look at its log and at /health/ready, which names the check; the database and Redis are "
        "the usual causes, then an overloaded machine. It clears itself.",
    ),
    "turn-down": Explanation(
        "A TURN server does not answer",
        "Two checks in a row got no answer, neither from its command line nor by STUN. Nothing new "
        "is reserved there, and its reservations count as lost: their owners are told.",
        "See whether the process runs and is not stopped, and whether the node reaches the address "
        "of its command line and of its first URL. It clears itself.",
    ),
    "turn-full": Explanation(
        "No TURN server has room for a class",
        "What is booked on the servers that carry this traffic class leaves less than one flow of "
        "it. New reservations are answered 503; existing ones are not affected.",
        "Look for reservations that are not needed, raise the capacity of a server "
        "to what its link really has, or add a server. It clears itself once there is room.",
    ),
    "qos-accounting-gap": Explanation(
        "The traffic of TURN servers is not counted",
        "The Redis that they share with the node (QOS_TURN_REDIS_URL) is out of reach. Calls go "
        "on; new secrets are not shared, and accounts of this time are marked incomplete.",
        "Start that Redis again. Allocations that end afterwards are counted exactly by their "
        "totals. It clears itself.",
    ),
    "faults-repeat": Explanation(
        "Failures of one part repeat",
        "Five failures of a part within a minute. Each ended what it belonged to and nothing else.",
        "The log has a traceback for each. Report it with the version; it clears itself.",
    ),
    "unclean-stop": Explanation(
        "A worker died",
        "A worker ended without stopping properly: killed, out of memory, a power cut. Its "
        "sessions may have missed messages, and were told of a gap.",
        "Find out what ended it (the kernel's log names a lack of memory). Clear the alarm.",
    ),
    "gap": Explanation(
        "A session lost messages",
        "There was no room in its queue, or the queue was lost with a worker. The runtime was "
        "told.",
        "If it repeats for one runtime, its network or page is slow; for many, raise OUTBOX_BYTES "
        "and GRACE_PERIOD. Clear the alarm.",
    ),
    "queue-budget": Explanation(
        "One source or subject fills the queues",
        "The queues of all its sessions have reached MAX_QUEUE_BYTES_PER_SOURCE; further messages "
        "are dropped, and each session is told. Nobody else is affected.",
        "Look at its sessions under Sessions; ban it if it does so on purpose, raise the limit if "
        "it is a gateway of many users. Clear the alarm.",
    ),
    "pool-exhausted": Explanation(
        "A pool of addresses is empty",
        "All addresses of the scheme are lent; requests for one are answered 503.",
        "Fill the pool under Address pools. It clears itself when one is free.",
    ),
    "worker-gap": Explanation(
        "Messages between workers were lost",
        "A worker noticed a gap in the messages of another, and requested them again.",
        "Occasionally a reconnection causes it. If it repeats, look at Redis and the network.",
    ),
    "worker-protocol": Explanation(
        "Two workers speak different protocols",
        "A worker of another version of the node runs besides this one, and their protocols "
        "differ. They do not connect; the one that starts later is not ready.",
        "Bring all workers to one version, as docs/operations.md says for an upgrade. Clear the "
        "alarm.",
    ),
    "worker-fenced": Explanation(
        "A worker lost its lease",
        "It could not renew its lease for WORKER_TIMEOUT: frozen, or cut off from the database. "
        "It closed its sockets and restarted; others have its sessions.",
        "Find out what froze it; raise WORKER_TIMEOUT if the machine pauses by design. Clear "
        "the alarm.",
    ),
    "worker-down": Explanation(
        "A worker does not respond",
        "Nothing came from it for WORKER_TIMEOUT. Messages it misses are signalled as a gap.",
        "Restart it, or check its connection to Redis. Clear the alarm.",
    ),
    "redis-away": Explanation(
        "A worker does not reach Redis",
        "Redis is out of reach or refuses the worker; the text says why. Its own sessions go on, "
        "and it is not ready.",
        "Bring Redis back, or correct REDIS_URL. It clears itself.",
    ),
    "redis-full": Explanation(
        "Redis has no memory left",
        "Messages between workers wait, then their senders are answered 503.",
        "Raise its maxmemory (LINK_BYTES for each pair of workers is enough). It clears itself.",
    ),
    "push-refused": Explanation(
        "A push service refuses the node's wake-ups",
        "It answered 400, 401 or 403: the browser subscribed with another key, or SECRET_KEY has "
        "changed since. Devices that sleep are not woken.",
        "Have pages subscribe with the key of /device/v1/push/key; look at PUSH_CONTACT. Clear the "
        "alarm.",
    ),
    "mqtt-broker-away": Explanation(
        "The MQTT broker is out of reach",
        "The text says why. Sessions of devices behind it are kept for GRACE_PERIOD, and what "
        "comes for them waits; sensors' objects keep their last value. The broker keeps what it "
        "has acknowledged.",
        "Bring the broker back, or correct MQTT_URL. It clears itself.",
    ),
    "peer-pending": Explanation(
        "The node of another domain waits for approval",
        "Somebody here has sent a message there, and its protostub was found. Nothing of it runs, "
        "and such messages are answered 503.",
        "Look at its source under Peers; approve it, which clears the alarm, or block the domain "
        "and clear the alarm.",
    ),
    "stub-changed": Explanation(
        "A peer offers another protostub",
        "The one that was approved goes on.",
        "Look at the new source under Peers and approve it, which clears the alarm, or ask the "
        "other domain.",
    ),
    "stub-unsigned": Explanation(
        "The approved protostub of a peer is not signed",
        "Its keys were given, or FEDERATION_SIGNED set, after it was approved, or they have "
        "changed. It does not run, and messages for that domain are answered 502.",
        "Have the other domain sign its stub, look for it again under Peers and approve it, or "
        "take the keys back. It clears itself.",
    ),
    "stub-failing": Explanation(
        "The protostub of a peer fails again and again",
        "The text says why. It is started again after longer and longer pauses; requests to that "
        "domain are answered 503 or 504.",
        "Look at the peer's last error; pause it, or ask the other domain. It clears itself.",
    ),
    "peer-stuck": Explanation(
        "Messages for another domain do not get there",
        "The text says why. Requests to that domain are answered 503 or 504; who observes it is "
        "told of a gap once it is back.",
        "Look at what waits for it; have that tried again or discard it. Under Peers start its "
        "stub anew, look for its stub again, pause it, or ask the other domain. It clears itself.",
    ),
    "peer-loop": Explanation(
        "A peer sends back what it was sent",
        "Nothing of it is passed on, and it is counted. So does a node that takes this domain for "
        "another's, or two that are visitors of each other.",
        "Ask the other domain; pause the peer meanwhile. Clear the alarm once that is settled.",
    ),
    "peer-spoofs": Explanation(
        "A peer speaks as somebody of this domain",
        "Nothing of it is passed on, and it is counted.",
        "Block the peer unless the other domain can say why. Clear the alarm once that is settled.",
    ),
    "message-set-aside": Explanation(
        "A stored message for another domain was not delivered",
        "Its time was over, or the way to the peer ended each time it was tried. Who sent it is "
        "told so if they are there. It is not tried again, and its addresses are kept for a week.",
        "Look at it under Stored messages. Whoever sent it may send it again. Clear the alarm.",
    ),
    "sandbox-missing": Explanation(
        "Federation is on, and there is nothing to run protostubs",
        "Messages to other domains are refused.",
        "pip install 'messaging-node[federation]' and restart. It clears itself.",
    ),
    "issuer-out-of-reach": Explanation(
        "An issuer's keys cannot be fetched",
        "Known keys go on for IDENTITY_STALE_KEYS; tokens signed with newer ones are refused.",
        "Look whether the issuer answers from this machine; give its keys by hand under Issuers if "
        "it takes long. It clears itself.",
    ),
    "policy-indeterminate": Explanation(
        "A policy could not be evaluated",
        "A rule asks for what a message does not have, or fails. Such messages are refused unless "
        "POLICY_DELIVER_INDETERMINATE says otherwise.",
        "The decision log names the rules; try the message in the playground. Clear the alarm.",
    ),
    "record-not-written": Explanation(
        "The traffic record is not written",
        "Its disk is full, its place cannot be written, or it has reached RECORD_MAX_BYTES. Rows "
        "wait in memory, then are lost and counted. Messages go on.",
        "Make room, or shorten RECORD_RAW_DAYS. It clears itself.",
    ),
    "record-damaged": Explanation(
        "Files of the record were left out of a report",
        "They cannot be read, or lack what the ledger says they have. The report says it is not "
        "whole.",
        "Bring them back from a copy, or accept the report as it is. Clear the alarm.",
    ),
    "record-not-compacted": Explanation(
        "The small files of an hour are not made one",
        "Spark could not write there, as on a disk that is full. Reports are made and are right; "
        "they take longer, the more files there are.",
        "The text says what failed. It clears itself with the next run that can.",
    ),
    "record-uncounted": Explanation(
        "Traffic was deleted that no report has counted",
        "Its days were over, or the record was near RECORD_MAX_BYTES, and no run had rolled it up: "
        "for days runs were not started, or failed.",
        "Look at Runs in the console. What is deleted is in no report. Clear the alarm.",
    ),
    "clock-jumped": Explanation(
        "The clock of a machine has jumped ahead",
        "It is days later than when it was looked at before: nothing ran there for so long, or the "
        "clock is wrong. Until it has gone on for a week nothing more is deleted for its age.",
        "Look at the machine's clock, and at what sets it. If it is right nothing need be done; "
        "the text says how it is believed at once. It clears itself.",
    ),
    "threshold": Explanation(
        "An operator's limit is passed",
        "A figure of the node has been beyond the limit of an alarm rule for as long as the rule "
        "says; the subject is the rule's name.",
        "The text says what to look at. The rule is under Alarm rules. It clears itself.",
    ),
    "notice-failed": Explanation(
        "Somebody could not be told of an alarm",
        "A mail or a webhook of an alarm rule failed eight times over an hour; the text says why.",
        "Look at EMAIL_URL, or whether the webhook answers, and try the rule under Alarm rules. It "
        "clears itself when that one can be told again.",
    ),
    "report-stream": Explanation(
        "The stream of reports has ended",
        "Its process of Spark failed; the alarm says why. Scheduled reports are made as before.",
        "It is started again by itself, later each time. Look at the log of `report_stream`.",
    ),
    "reports-late": Explanation(
        "A report is late",
        "It should have been made by now: the Celery worker or beat does not run, or Spark fails.",
        "Look at Runs in the console, and at the logs of worker and beat. It clears itself.",
    ),
}
