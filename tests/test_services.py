"""The servers that tests lean on are real and empty, and so is the browser."""

from pathlib import Path

import psycopg
import pytest
import redis
from playwright.sync_api import sync_playwright

from tests import services
from tests.redis.servers import RedisServer


def test_redis_answers(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.set("who", "node")
        assert client.get("who") == b"node"
        client.delete("who")


def test_where_no_redis_is_installed_what_starts_one_of_its_own_is_skipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(services, "_in_wheel", lambda package, path: None)
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no Redis"):
        RedisServer(tmp_path)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no Redis"):
        RedisServer(tmp_path)


def test_postgres_answers(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as client:
        row = client.execute("SELECT current_database(), current_user").fetchone()
    assert row == ("node", "node")


@pytest.mark.long
def test_the_browser_shows_a_page(chromium: str) -> None:
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.set_content("<h1>node</h1>")
        assert page.inner_text("h1") == "node"
        browser.close()
