"""The servers that tests lean on are real and empty."""

import psycopg
import redis


def test_redis_answers(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.set("who", "node")
        assert client.get("who") == b"node"
        client.delete("who")


def test_postgres_answers(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as client:
        row = client.execute("SELECT current_database(), current_user").fetchone()
    assert row == ("node", "node")
