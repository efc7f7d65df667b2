"""What one worker does for all: who has the claim, and who has it no longer."""

from __future__ import annotations

import pytest
from django.db import transaction

from msgnode.models import Worker, WorkerClaim
from msgnode.storage import claims

pytestmark = pytest.mark.django_db

NAME, ME, OTHER = "supervise", "epoch of mine", "epoch of another"


@pytest.fixture(autouse=True)
def workers() -> None:
    for epoch in (ME, OTHER):
        runs(epoch)


def runs(epoch: str) -> None:
    Worker.objects.create(epoch=epoch, name=epoch, host="localhost", pid=1, state="ready")


def dies(epoch: str) -> None:
    Worker.objects.filter(epoch=epoch).delete()


def has(epoch: str) -> bool:
    try:
        with transaction.atomic():
            claims.check(NAME, epoch)
    except claims.NotHolder:
        return False
    return True


def test_the_first_that_asks_has_it_until_it_gives_it_up() -> None:
    assert not has(ME)
    assert claims.take(NAME, ME)
    assert claims.take(NAME, ME)
    assert not claims.take(NAME, OTHER)
    assert (has(ME), has(OTHER)) == (True, False)
    claims.release(NAME, OTHER)
    assert has(ME)
    claims.release(NAME, ME)
    assert not has(ME)
    assert claims.take(NAME, OTHER)
    assert not claims.take(NAME, ME)


def test_a_claim_ends_with_the_epoch_of_its_worker() -> None:
    assert claims.take(NAME, ME)
    dies(ME)
    assert not has(ME), "before another has taken it, too"
    assert claims.take(NAME, OTHER)
    runs(ME)
    assert not claims.take(NAME, ME)
    assert (has(ME), has(OTHER)) == (False, True)


def test_claims_of_two_names_have_nothing_to_do_with_each_other() -> None:
    assert claims.take(NAME, ME)
    assert claims.take("serve", OTHER)
    assert WorkerClaim.objects.count() == 2
    assert has(ME)


def test_a_worker_that_stands_by_writes_nothing(django_assert_num_queries: object) -> None:
    assert claims.take(NAME, ME)
    with django_assert_num_queries(1):  # type: ignore[operator]
        assert not claims.take(NAME, OTHER)
