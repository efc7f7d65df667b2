"""Which worker supervises: one at a time, by a lease in the database and by the database's clock.

A supervisor checks its lease inside each of its transactions and locks the row, so that one that
was frozen and is no longer the supervisor writes nothing. All functions block.
"""

from __future__ import annotations

from datetime import timedelta

from django.db import IntegrityError, connection, transaction
from django.db.models import DateTimeField, ExpressionWrapper, Q
from django.db.models.functions import Now

from .models import SupervisorLease

NAME = "qos"


class NotSupervisor(Exception):
    """Another worker supervises now."""


def hold(epoch: str, seconds: float) -> bool:
    """Have the lease for so many seconds, if nobody else has it; whether this worker supervises."""
    until = ExpressionWrapper(Now() + timedelta(seconds=seconds), output_field=DateTimeField())
    rows = SupervisorLease.objects.filter(name=NAME)
    if rows.filter(Q(epoch=epoch) | Q(until__lt=Now())).update(epoch=epoch, until=until):
        return True
    if rows.exists():
        return False
    try:
        with transaction.atomic():
            SupervisorLease.objects.create(name=NAME, epoch=epoch, until=Now())
    except IntegrityError:
        return False
    return hold(epoch, seconds)


def check(epoch: str) -> None:
    """Whether this worker still supervises, until the transaction ends. Raises NotSupervisor."""
    rows = SupervisorLease.objects.filter(name=NAME, epoch=epoch)
    if connection.features.has_select_for_update:
        rows = rows.select_for_update()
    if not rows.values_list("name"):
        raise NotSupervisor


def give_up(epoch: str) -> None:
    """Let another worker supervise at once."""
    SupervisorLease.objects.filter(name=NAME, epoch=epoch).delete()
