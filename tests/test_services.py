"""The servers that tests lean on are real and empty, and so is the browser."""

import psycopg
import pytest
import redis
from playwright.sync_api import sync_playwright


def test_redis_answers(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.set("who", "node")
        assert client.get("who") == b"node"
        client.delete("who")


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
