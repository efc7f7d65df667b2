"""What `/metrics` answers to a question it does not know."""

from __future__ import annotations

from django.test import RequestFactory

from msgnode.ops.metrics import metrics


def test_a_worker_that_cannot_be_asked_for_is_refused(rf: RequestFactory) -> None:
    answer = metrics(rf.get("/metrics?worker=bogus"))
    assert answer.status_code == 400
    assert b"`this`" in answer.content
