"""Work of the policy engine outside the node: the mails of obligations."""

from __future__ import annotations

from celery import shared_task
from django.core.mail import send_mail

from policies.enforcement.obligations import SEND_MAIL


@shared_task(name=SEND_MAIL, autoretry_for=(OSError,), retry_backoff=True, max_retries=5)
def send_mail_of_policy(to: list[str], source: str, summary: str) -> None:
    """Send the mail an `emailto` obligation asks for."""
    send_mail(f"Policy {source}", summary, None, to)
