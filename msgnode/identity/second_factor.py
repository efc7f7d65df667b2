"""The second factors of accounts: codes of an app (TOTP), passkeys (WebAuthn), recovery codes.

Rules
- A code, and a recovery code, counts once; a code for its half minute, and those beside it. A
  passkey whose counter goes back has been copied, and is refused.
- A passkey is for the host name that it was made at, and proves that its owner was there (PIN or
  biometrics): it may stand for password and second factor together.
- With the first factor an account gets recovery codes; with its last one they go.
- A role may ask for a second factor (RoleAccess). A superuser has the administrators' role.
- An account has at most MOST; of wrong tries PER_MINUTE count, from all addresses together.

The libraries do the cryptography: fido2, and cryptography's TOTP; they are loaded when used.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from time import time
from typing import TYPE_CHECKING, Any

from django.contrib.auth.models import Group, User
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from msgnode.core.digest import digest
from msgnode.core.http_limits import HTTP_LIMITS
from msgnode.models import SecondFactor

from .encryption import decrypt, encrypt

if TYPE_CHECKING:
    from fido2.server import Fido2Server

PERIOD = 30
DIGITS = 6
MOST = 10
"""Apps and passkeys of an account."""
RECOVERY_CODES = 10
PER_MINUTE = 5
_SECRET_BYTES, _RECOVERY_BYTES = 20, 10
_ADMINISTRATOR = "administrator"
_KINDS = SecondFactor.Kind
_NOT_RIGHT = "This code is not right. Look at the app, and at the clock of its device."

Json = dict[str, Any]


class Wrong(Exception):
    """The factor was not accepted; the text says why, for who tries."""

    status = HTTPStatus.OK


class TooOften(Wrong):
    """There were too many wrong tries for this account."""

    status = HTTPStatus.TOO_MANY_REQUESTS


def factors_of(user: User) -> list[SecondFactor]:
    """The apps and passkeys of an account, without its recovery codes."""
    return list(SecondFactor.objects.filter(user=user).exclude(kind=_KINDS.RECOVERY))


def has_factor(user: User) -> bool:
    """Whether the account has an app or a passkey."""
    return SecondFactor.objects.filter(user=user).exclude(kind=_KINDS.RECOVERY).exists()


def is_required(user: User) -> bool:
    """Whether one of the account's roles asks for a second factor."""
    mine = Q(user=user)
    if user.is_superuser:
        mine |= Q(name=_ADMINISTRATOR)
    return Group.objects.filter(mine, access__needs_second_factor=True).exists()


def is_asked(user: User) -> bool:
    """Whether the password alone does not let the account in."""
    return has_factor(user) or is_required(user)


# --- What is tried --------------------------------------------------------------------------------


def verify_text(user: User, text: str) -> SecondFactor:
    """The factor that a typed code is of: of an app, or a recovery code. Raises Wrong."""
    with _counted(user):
        given = "".join(text.split()).replace("-", "").upper()
        if given.isascii() and given.isdecimal() and len(given) == DIGITS:
            return _verify_code(user, given)
        return _verify_recovery(user, given)


def verify_passkey(server: Fido2Server, state: Json, answer: Json, user: User | None) -> Any:
    """The passkey that has signed: of this account, or of any. Raises Wrong.

    Args:
        server: of the host that the browser is at.
        state: what `passkey_question` has returned.
        answer: what the browser says, as JSON.
        user: whose it must be; None: the passkey says who it is.
    """
    from fido2.webauthn import AttestedCredentialData, AuthenticationResponse

    key = answer.get("id")
    rows = SecondFactor.objects.filter(kind=_KINDS.PASSKEY, key=str(key)[:1400])
    row = rows.select_related("user").first()
    if row is None or (user is not None and row.user_id != user.pk):
        raise Wrong("This passkey is not known here.")
    with _counted(row.user):
        known = AttestedCredentialData(base64.b64decode(row.public))
        try:
            server.authenticate_complete(state, [known], answer)
            told = AuthenticationResponse.from_dict(answer).response.authenticator_data
        except (ValueError, TypeError, KeyError, AttributeError) as fault:
            raise Wrong("The passkey was not accepted.") from fault
        if (told.counter or row.counter > 0) and not _take(row, told.counter):
            raise Wrong("This passkey has been copied: its counter went back. Remove it.")
        rows.update(last_used_at=timezone.now())
        return row


@contextmanager
def _counted(user: User) -> Iterator[None]:
    """Wrong tries within are counted for the account; too many are not looked at."""
    key = ("second-factor", str(user.pk), PER_MINUTE)
    if HTTP_LIMITS.is_spent(*key):
        raise TooOften("Too many wrong codes for this account. Wait a minute.")
    try:
        yield
    except Wrong:
        HTTP_LIMITS.take(*key)
        raise


def _verify_code(user: User, code: str) -> SecondFactor:
    for row in SecondFactor.objects.filter(user=user, kind=_KINDS.CODES):
        secret = decrypt(row.sealed)
        if secret and (step := _step_of(secret, code)) is not None:
            if not _take(row, step):
                raise Wrong("This code has been used already. Wait for the next one.")
            return row
    raise Wrong(_NOT_RIGHT)


def _verify_recovery(user: User, code: str) -> SecondFactor:
    with transaction.atomic():
        row = SecondFactor.objects.filter(
            user=user, kind=_KINDS.RECOVERY, key=_recovery_key(user, code)
        ).first()
        if row is None or not row.delete()[0]:
            raise Wrong("This is neither a code of the app nor a recovery code that is left.")
    return row


def _take(row: SecondFactor, counter: int) -> bool:
    """Note the newest use; false if there was one as new."""
    newer = SecondFactor.objects.filter(pk=row.pk, counter__lt=counter)
    return bool(newer.update(counter=counter, last_used_at=timezone.now()))


def _step_of(secret: str, code: str) -> int | None:
    """The half minute that a code is of, now or just beside; None if it is of none."""
    now = int(time() // PERIOD)
    steps = (now, now - 1, now + 1)
    return next((each for each in steps if secrets.compare_digest(_code(secret, each), code)), None)


def _code(secret: str, step: int) -> str:
    from cryptography.hazmat.primitives.hashes import SHA1
    from cryptography.hazmat.primitives.twofactor.totp import TOTP

    made = TOTP(base64.b32decode(secret), DIGITS, SHA1(), PERIOD)  # noqa: S303 (RFC 6238)
    return made.generate(step * PERIOD).decode()


# --- What is set up -------------------------------------------------------------------------------


def new_secret() -> str:
    """A secret for an app, as it is typed."""
    return base64.b32encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def secret_url(secret: str, name: str, node: str) -> str:
    """What the picture for an app says (otpauth:)."""
    from urllib.parse import quote, urlencode

    label = f"{quote(node, safe='')}:{quote(name, safe='')}"
    return f"otpauth://totp/{label}?{urlencode({'secret': secret, 'issuer': node})}"


def picture(text: str) -> str:
    """A QR code as a data: URL."""
    import segno

    return str(segno.make(text, error="m").svg_data_uri(scale=5, dark="#12262b", light="#fff"))


def add_app(user: User, secret: str, code: str, name: str) -> SecondFactor:
    """Enter an app that shows the right code for its secret. Raises Wrong."""
    _check_room(user)
    given = "".join(code.split())
    step = _step_of(secret, given) if given.isascii() else None
    if step is None:
        raise Wrong(_NOT_RIGHT)
    return SecondFactor.objects.create(
        user=user, kind=_KINDS.CODES, name=name, sealed=encrypt(secret), counter=step
    )


def passkey_server(host: str, scheme: str) -> Fido2Server:
    """What asks browsers for passkeys of this node, at the host (with its port) they are at."""
    from fido2.server import Fido2Server
    from fido2.webauthn import PublicKeyCredentialRpEntity

    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    entity = PublicKeyCredentialRpEntity(name="Messaging Node", id=name)
    return Fido2Server(entity, verify_origin=lambda origin: origin == f"{scheme}://{host}")


def passkey_offer(server: Fido2Server, user: User) -> tuple[Json, Json]:
    """What a browser is given to make a passkey, and the state to keep meanwhile."""
    from fido2.webauthn import (
        PublicKeyCredentialUserEntity,
        ResidentKeyRequirement,
        UserVerificationRequirement,
    )

    entity = PublicKeyCredentialUserEntity(
        id=digest(f"account {user.pk}")[:32].encode(),
        name=user.get_username(),
        display_name=user.get_full_name() or user.get_username(),
    )
    options, state = server.register_begin(
        entity,
        _known(user),
        resident_key_requirement=ResidentKeyRequirement.PREFERRED,
        user_verification=UserVerificationRequirement.REQUIRED,
    )
    return dict(options), state


def passkey_question(server: Fido2Server, user: User | None) -> tuple[Json, Json]:
    """What a browser is given to use a passkey, of an account or of any, and the state to keep."""
    from fido2.webauthn import UserVerificationRequirement

    known = _known(user) if user is not None else None
    options, state = server.authenticate_begin(known, UserVerificationRequirement.REQUIRED)
    return dict(options), state


def add_passkey(
    server: Fido2Server, user: User, state: Json, answer: Json, name: str
) -> SecondFactor:
    """Enter a passkey that the browser has made. Raises Wrong."""
    from fido2.utils import websafe_encode

    _check_room(user)
    try:
        made = server.register_complete(state, answer).credential_data
    except (ValueError, TypeError, KeyError, AttributeError) as fault:
        raise Wrong("The passkey was not accepted.") from fault
    if made is None:
        raise Wrong("The passkey was not accepted.")
    key = websafe_encode(made.credential_id)
    if SecondFactor.objects.filter(key=key).exists():
        raise Wrong("This passkey is known already.")
    public = base64.b64encode(bytes(made)).decode()
    return SecondFactor.objects.create(
        user=user, kind=_KINDS.PASSKEY, name=name, key=key, public=public
    )


@transaction.atomic
def new_recovery_codes(user: User) -> list[str]:
    """Recovery codes in the place of those there were; they are shown once."""
    SecondFactor.objects.filter(user=user, kind=_KINDS.RECOVERY).delete()
    codes = [
        base64.b32encode(secrets.token_bytes(_RECOVERY_BYTES)).decode()
        for _ in range(RECOVERY_CODES)
    ]
    SecondFactor.objects.bulk_create(
        SecondFactor(user=user, kind=_KINDS.RECOVERY, key=_recovery_key(user, code))
        for code in codes
    )
    return ["-".join(code[n : n + 4] for n in range(0, len(code), 4)) for code in codes]


def recovery_codes_left(user: User) -> int:
    """How many recovery codes the account has."""
    return SecondFactor.objects.filter(user=user, kind=_KINDS.RECOVERY).count()


@transaction.atomic
def remove(user: User, pk: int | None = None) -> int:
    """Take away a factor of an account, or all; with the last one go the recovery codes."""
    rows = SecondFactor.objects.filter(user=user)
    if pk is not None:
        rows = rows.filter(pk=pk).exclude(kind=_KINDS.RECOVERY)
    removed, _ = rows.delete()
    if not has_factor(user):
        SecondFactor.objects.filter(user=user).delete()
    return removed


def shown(row: SecondFactor) -> dict[str, str]:
    """A factor without its secrets, for the audit."""
    return {"kind": row.kind, "name": row.name}


def _check_room(user: User) -> None:
    if len(factors_of(user)) >= MOST:
        raise Wrong(f"An account has at most {MOST} of them. Remove one first.")


def _known(user: User) -> list[Any]:
    from fido2.webauthn import AttestedCredentialData

    rows = SecondFactor.objects.filter(user=user, kind=_KINDS.PASSKEY)
    return [AttestedCredentialData(base64.b64decode(row.public)) for row in rows]


def _recovery_key(user: User, code: str) -> str:
    return digest(f"recovery code {user.pk} {code}")
