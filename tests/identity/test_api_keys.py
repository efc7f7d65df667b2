"""Service accounts: a key does what its scopes say, until it ends, and is never seen again."""

from __future__ import annotations

import base64
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from msgnode.identity import api_keys
from msgnode.models import ApiKey, AuditEntry

pytestmark = pytest.mark.django_db

HYPERTY = "hyperty://localhost/key-1"
ENTRY = {
    "user": "user://localhost/a", "descriptor": "d", "resources": [], "dataSchemes": [],
    "status": "live", "expires": 60, "runtime": "runtime://localhost/1",
}  # fmt: skip
AT = "/api/v1/hyperties/" + base64.urlsafe_b64encode(HYPERTY.encode()).rstrip(b"=").decode()
FIELD = "/domain-registry/live"


def key(*scopes: str, **fields: Any) -> tuple[ApiKey, str]:
    row = ApiKey(
        name=f"key {ApiKey.objects.count()}",
        scopes=list(scopes),
        expires_at=timezone.now() + timedelta(days=1),
    )
    for name, value in fields.items():
        setattr(row, name, value)
    text = api_keys.issue(row)
    row.save()
    return row, text


class Program:
    def __init__(self, text: str, kind: str = "Bearer") -> None:
        self.client = Client(headers={"authorization": f"{kind} {text}"})

    def read(self) -> int:
        return self.client.get("/api/v1/hyperties").status_code

    def write(self) -> int:
        return self.client.put(AT, ENTRY, content_type="application/json").status_code


@pytest.mark.parametrize("access", ["open", "read-open", "account"])
def test_a_key_is_held_to_its_scopes_however_open_the_registry_is(
    settings: Any, access: str
) -> None:
    settings.REGISTRY = {**settings.REGISTRY, "ACCESS": access}
    _, reads = key("registry:read")
    _, writes = key("registry:write")
    _, reports = key("reports:read")
    assert (Program(reads).read(), Program(reads).write()) == (200, 403)
    assert (Program(writes).read(), Program(writes).write()) == (200, 201)
    assert (Program(reports).read(), Program(reports).write()) == (403, 403)


def test_a_key_opens_the_fields_endpoints(settings: Any) -> None:
    settings.REGISTRY = {**settings.REGISTRY, "ACCESS": "account"}
    _, text = key("registry:write")
    assert Client().get(FIELD).status_code == 401
    program = Program(text, "Api-Key")
    assert program.write() == 201
    assert program.client.get(FIELD).status_code == 200


def test_reports_and_status_have_scopes_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark.api.enqueue", lambda number: None)
    _, reads = key("reports:read")
    _, runs = key("reports:read", "reports:run")
    _, status = key("status:read")
    run = {"kind": "hourly", "start": "2026-01-01T00:00:00Z"}

    def code(text: str, path: str, body: Any = None) -> int:
        client = Program(text).client
        answer = client.get(path) if body is None else client.post(path, body)
        return answer.status_code

    assert code(reads, "/api/v1/reports/") == 200
    assert code(status, "/api/v1/reports/") == 403
    assert code(reads, "/api/v1/report-runs/", run) == 403
    assert code(runs, "/api/v1/report-runs/", run) == 202
    assert code(status, "/api/v1/status") == 200
    assert code(reads, "/api/v1/status") == 403
    assert Client().get("/api/v1/status").status_code in (401, 403)


@pytest.mark.parametrize("wrong", ["mnk_", "mnk_00000000_x", "mnk_a_b_c", "mnk_" + "x" * 999])
def test_a_wrong_key_is_refused_even_where_anybody_may_come_in(wrong: str) -> None:
    _, text = key("registry:read")
    changed = text[:-1] + ("A" if text[-1] != "A" else "B")
    assert Program(changed).read() == 401
    assert Program(wrong).read() == 401


def test_a_key_ends(settings: Any) -> None:
    row, text = key("registry:read")
    assert Program(text).read() == 200
    ApiKey.objects.update(is_active=False)
    assert Program(text).read() == 401
    ApiKey.objects.update(is_active=True, expires_at=timezone.now())
    assert Program(text).read() == 401
    row.delete()
    assert Program(text).read() == 401


def test_rotated_the_old_secret_works_for_a_while() -> None:
    row, old = key("registry:read")
    new = api_keys.rotate(row)
    assert new != old
    assert new.split("_")[1] == old.split("_")[1]
    assert (Program(old).read(), Program(new).read()) == (200, 200)
    ApiKey.objects.update(previous_until=timezone.now())
    assert (Program(old).read(), Program(new).read()) == (401, 200)


def test_a_command_rotates_a_key_shows_it_once_and_says_so_in_the_audit() -> None:
    row, old = key("registry:read")
    out = StringIO()
    call_command("api_key", "--rotate", row.name, stdout=out)
    new = out.getvalue().strip()
    assert (Program(old).read(), Program(new).read()) == (200, 200)
    assert new != old
    entry = AuditEntry.objects.get(action="apikey.rotate")
    assert (entry.object, entry.after) == (row.name, {"secret": "new"})
    out = StringIO()
    call_command("api_key", stdout=out)
    assert row.prefix in out.getvalue() and new.split("_")[2] not in out.getvalue()
    with pytest.raises(CommandError, match="There is no API key nobody"):
        call_command("api_key", "--rotate", "nobody")


def test_only_a_hash_is_kept() -> None:
    row, text = key("registry:read")
    secret = text.split("_", 2)[2]
    assert len(secret) >= 43  # 256 bits
    assert secret not in str(ApiKey.objects.filter(pk=row.pk).values())


def test_last_use_is_shown_and_noted_once_a_minute() -> None:
    row, text = key("registry:read")
    Program(text).read()
    row.refresh_from_db()
    first = row.last_used_at
    assert first is not None
    assert row.last_used_from == "127.0.0.1"
    Program(text).read()
    row.refresh_from_db()
    assert row.last_used_at == first


def test_a_key_has_its_rate(settings: Any) -> None:
    settings.CLIENT_REQUESTS_PER_MINUTE = 2
    _, text = key("registry:read")
    program = Program(text)
    assert [program.read() for _ in range(4)] == [200, 200, 429, 429]
    assert int(program.client.get("/api/v1/hyperties")["Retry-After"]) > 0


def test_guessing_is_slowed_down(django_assert_num_queries: Any) -> None:
    codes = [Program("mnk_00000000_guess").read() for _ in range(api_keys.MISSES_PER_MINUTE + 1)]
    assert set(codes[:-1]) == {401}
    with django_assert_num_queries(0):
        assert Program("mnk_00000000_guess").read() == 429


def test_in_the_console_it_is_shown_once(operator: Client) -> None:
    form = {
        "name": "billing", "scopes": ["registry:read"], "is_active": "on",
        "expires_at_0": "2099-01-01", "expires_at_1": "00:00:00",
    }  # fmt: skip
    page = operator.post("/admin/msgnode/apikey/add/", form, follow=True).content.decode()
    text = next(word for word in page.replace("<", " ").split() if word.startswith("mnk_"))
    assert Program(text).read() == 200
    row = ApiKey.objects.get()
    assert row.created_by == "operator"
    for path in ("", f"{row.pk}/change/"):
        assert text not in operator.get(f"/admin/msgnode/apikey/{path}").content.decode()
    asked = operator.get(f"/admin/msgnode/apikey/{row.pk}/rotate/")
    assert "another 24 hours" in asked.content.decode()
    assert Program(text).read() == 200
    page = operator.post(f"/admin/msgnode/apikey/{row.pk}/rotate/", follow=True).content.decode()
    new = next(word for word in page.replace("<", " ").split() if word.startswith("mnk_"))
    assert Program(new).read() == 200


def test_what_a_key_does_is_done_in_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark.api.enqueue", lambda number: None)
    _, text = key("reports:read", "reports:run")
    run = {"kind": "hourly", "start": "2026-01-01T00:00:00Z"}
    Program(text).client.post("/api/v1/report-runs/", run)
    assert AuditEntry.objects.get(action="reportrun.add").actor.startswith("key:")
