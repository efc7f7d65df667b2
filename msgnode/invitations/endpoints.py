"""Push endpoints, and the invitations left there: their rows, and /push/<endpoint> over HTTP.

Rules
- An endpoint belongs to one runtime of one user. Its id is random: whoever knows it may invite
  there.
- It expires DAYS after it was last requested; a user has at most MAX_PER_USER, the newest.
- An invitation is delivered once: its row stays, without its text, until it has expired.
- A worker that delivers one has LEASE for it, and marks it afterwards. If it ends before that, the
  next worker takes over: then it may come twice, and the receiver ignores a repeated name.
- Whoever knows endpoint and name may withdraw it: then it is not delivered; if it may have been
  already, the withdrawal is delivered in the same way.
- An endpoint has at most MAX_WAITING invitations that have not expired.
- The functions of rows block: they run in threads.

Over HTTP callers from elsewhere leave an invitation (as RFC 8030, section 5). POST leaves one:

201 with Location for every invitation that is well-formed, whether or not anybody is there. 404 for
an endpoint that is none, 413 above 4,096 bytes, 415 for what is not JSON, 400 for what is none, 429
with Retry-After above the limits: by the address of the caller, and by the endpoint.

DELETE of what Location named withdraws it: 204, whether or not it had been heard or was withdrawn
before; 404 for one that is none, or has expired.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec
from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt

from msgnode import models
from msgnode.core.errors import BadMessage, NodeError, NotFound, TooMany
from msgnode.core.http_limits import HTTP_LIMITS
from msgnode.identity.provider.cards import PUSH
from msgnode.storage import control
from msgnode.storage.deletion import delete_with_dependents
from msgnode.web.proxies import source_of_request

from . import wire
from .wire import INVITATION_LEFT, Invitation

DAYS = 30
MAX_PER_USER = 10
MAX_WAITING = 64
LEASE = timedelta(seconds=5)


class Waiting(NamedTuple):
    """An invitation to be delivered to a runtime, or its withdrawal.

    `subject` is its recipient; no other worker delivers it before `taken_until`.
    """

    pk: int
    subject: str
    address: str
    message: dict[str, Any]
    is_withdrawal: bool
    taken_until: datetime


def url_of(id_: str) -> str:
    """Where callers leave invitations."""
    return f"{settings.PUBLIC_URL}{PUSH}/{id_}"


@transaction.atomic
def open_for(
    subject: str, user_url: str, runtime_url: str, address: str, hyperty: str
) -> models.PushEndpoint:
    """The endpoint of a user's runtime: the one it has, renewed, or a new one."""
    now = timezone.now()
    said: dict[str, Any] = {"user_url": user_url, "address": address, "hyperty": hyperty}
    said |= {"renewed_at": now, "expires_at": now + timedelta(days=DAYS)}
    endpoint, is_new = models.PushEndpoint.objects.update_or_create(
        subject=subject,
        runtime_url=runtime_url,
        defaults=said,
        create_defaults={"id": secrets.token_urlsafe(24), **said},
    )
    if is_new:
        mine = models.PushEndpoint.objects.filter(subject=subject).order_by("-renewed_at")
        old = list(mine.values_list("pk", flat=True)[MAX_PER_USER:])
        delete_with_dependents(models.PushEndpoint.objects.filter(pk__in=old))
    return endpoint


def close(subject: str, runtime_url: str) -> int:
    """Delete the endpoint of a user's runtime, with its invitations; return their number."""
    mine = models.PushEndpoint.objects.filter(subject=subject, runtime_url=runtime_url)
    return delete_with_dependents(mine)


def leave(id_: str, invitation: Invitation, seconds: int) -> None:
    """Store an invitation for a while, and have the workers look for its runtime.

    Raises:
        NotFound: the endpoint does not exist any more.
        BadMessage: it is for somebody else.
        TooMany: too many have not expired.
    """
    now = timezone.now()
    endpoint = models.PushEndpoint.objects.filter(pk=id_, expires_at__gt=now).first()
    if endpoint is None or not _is_active(endpoint.subject):
        raise _no_such_endpoint()
    if invitation.user_url != endpoint.user_url:
        raise BadMessage("`to` is not whose endpoint this is.")
    known = models.Invitation.objects.filter(endpoint=endpoint)
    known.filter(expires_at__lte=now).delete()
    if known.filter(name=invitation.name).exists():
        return
    if known.count() >= MAX_WAITING:
        raise TooMany("Too many invitations have not expired.")
    expires = datetime.fromtimestamp(invitation.expires, UTC)
    try:
        with transaction.atomic():
            models.Invitation.objects.create(
                endpoint=endpoint,
                name=invitation.name,
                message=msgspec.json.encode(invitation.message).decode(),
                keep_until=min(expires, now + timedelta(seconds=seconds)),
                expires_at=expires,
            )
            control.post(INVITATION_LEFT, runtime_url=endpoint.runtime_url)
    except IntegrityError:  # it came twice at once, or the endpoint has gone meanwhile
        if not known.filter(name=invitation.name).exists():
            raise _no_such_endpoint() from None


def waiting_runtimes() -> set[str]:
    """The runtimes for which something waits."""
    found = _waiting().values_list("endpoint__runtime_url", flat=True)
    return set(found)


def withdraw(id_: str, name: str) -> None:
    """Withdraw an invitation. Idempotent.

    Raises:
        NotFound: there is no such invitation, or it has expired.
    """
    it = models.Invitation.objects.filter(endpoint=id_, name=name, expires_at__gt=timezone.now())
    row = it.select_related("endpoint").first()
    if row is None:
        raise NotFound("There is no such invitation, or it has expired.")
    unheard = it.filter(taken_until=None, withdrawn=False).exclude(message="")
    if unheard.update(message="", withdrawn=True):
        return
    told = {"to": row.endpoint.user_url, "value": {"invitation": name}}
    message = msgspec.json.encode(told).decode()
    with transaction.atomic():
        once = it.filter(withdrawn=False)
        if once.update(
            message=message, withdrawn=True, taken_until=None, keep_until=row.expires_at
        ):
            control.post(INVITATION_LEFT, runtime_url=row.endpoint.runtime_url)


def take(runtime_url: str, subjects: set[str]) -> tuple[list[Waiting], bool]:
    """What waits for a runtime of these users, for this worker to hand over.

    Returns:
        That; and whether another worker is handing over something.
    """
    rows = _waiting().filter(endpoint__runtime_url=runtime_url, endpoint__subject__in=subjects)
    here, is_elsewhere = [], False
    for row in rows.select_related("endpoint").order_by("pk"):
        now = timezone.now()
        until, of = now + LEASE, row.endpoint
        it = models.Invitation.objects.filter(pk=row.pk, taken_until=row.taken_until)
        is_free = row.taken_until is None or row.taken_until <= now
        if is_free and it.filter(message=row.message).update(taken_until=until):
            message = msgspec.json.decode(row.message)
            here.append(Waiting(row.pk, of.subject, of.address, message, row.withdrawn, until))
        else:
            is_elsewhere = True
    return here, is_elsewhere


def handed_over(those: list[Waiting]) -> None:
    """Mark invitations as delivered; the withdrawal of one is still to be delivered."""
    for each in those:
        it = models.Invitation.objects.filter(pk=each.pk, taken_until=each.taken_until)
        it.update(message="", taken_until=None)


def _no_such_endpoint() -> NotFound:
    return NotFound("There is no such endpoint.")


def _waiting() -> QuerySet[models.Invitation]:
    return models.Invitation.objects.filter(keep_until__gt=timezone.now()).exclude(message="")


def _is_active(subject: str) -> bool:
    users = get_user_model().objects
    return subject.isdecimal() and users.filter(pk=int(subject), is_active=True).exists()


# --- over HTTP ------------------------------------------------------------------------------------
SOURCE_FACTOR = 10
"""A source address may leave this many times as many invitations as one endpoint accepts."""


class TooLarge(NodeError):
    """More than an invitation may have."""

    code = 413
    title = "Too large"


class NoJson(NodeError):
    """The content has another type, or is encrypted."""

    code = 415
    title = "Not JSON"


@method_decorator(csrf_exempt, name="dispatch")  # no cookie says who calls
class PushView(View):
    """One endpoint."""

    http_method_names = ["post", "options"]  # noqa: RUF012

    def post(self, request: HttpRequest, endpoint: str) -> HttpResponse:
        """Leave an invitation."""
        return _answered(lambda: self._leave(request, endpoint))

    def _leave(self, request: HttpRequest, endpoint: str) -> HttpResponse:
        most = _allowed(request)
        if int(request.headers.get("Content-Length") or 0) > wire.MAX_BYTES:
            raise TooLarge(f"An invitation has at most {wire.MAX_BYTES} bytes.")
        is_plain = request.content_type == "application/json"
        if not is_plain or "Content-Encoding" in request.headers:
            raise NoJson("An invitation is posted as application/json, and not encoded.")
        body = request.read(wire.MAX_BYTES + 1)
        if len(body) > wire.MAX_BYTES:
            raise TooLarge(f"An invitation has at most {wire.MAX_BYTES} bytes.")
        seconds = wire.seconds_kept(request.headers.get("TTL", ""))
        invitation = wire.read(body, time.time())
        _take("push", endpoint, most)
        leave(endpoint, invitation, seconds)
        answer = HttpResponse(status=201)
        answer["Location"] = f"{url_of(endpoint)}/{quote(invitation.name, safe='')}"
        answer["TTL"] = str(seconds)
        return answer


@method_decorator(csrf_exempt, name="dispatch")
class LeftView(View):
    """One invitation that was left."""

    http_method_names = ["delete", "options"]  # noqa: RUF012

    def delete(self, request: HttpRequest, endpoint: str, name: str) -> HttpResponse:
        """Withdraw it."""

        def answer() -> HttpResponse:
            _allowed(request)
            withdraw(endpoint, name)
            return HttpResponse(status=204)

        return _answered(answer)


def _allowed(request: HttpRequest) -> int:
    """How many invitations an endpoint takes a minute. Raises NotFound and TooMany."""
    if not settings.INVITATIONS["ON"]:
        raise NotFound("There is no such endpoint.")
    most: int = settings.INVITATIONS["PER_MINUTE"]
    _take("push-source", source_of_request(request), SOURCE_FACTOR * most)
    return most


def _answered(answer_to: Callable[[], HttpResponse]) -> HttpResponse:
    try:
        answer = answer_to()
    except NodeError as error:
        told = {"code": error.code, "desc": error.description}
        answer = JsonResponse(told, status=error.code)
        if isinstance(error, _Wait):
            answer["Retry-After"] = str(int(error.seconds) + 1)
    answer["Cache-Control"] = "no-store"
    return answer


class _Wait(TooMany):
    def __init__(self, seconds: float) -> None:
        super().__init__("Too many invitations.")
        self.seconds = seconds


def _take(kind: str, who: str, per_minute: int) -> None:
    if wait := HTTP_LIMITS.take(kind, who, per_minute):
        raise _Wait(wait)
