"""The newcomer's page names the addresses as the newcomer reaches them."""

from django.test import Client


def test_it_names_the_addresses_it_was_asked_by(client: Client) -> None:
    answer = client.get("/", headers={"host": "node.example.org:8443"}, secure=True)
    assert answer.status_code == 200
    assert answer["Content-Type"].startswith("text/plain")
    words = answer.content.decode().split()
    assert "wss://node.example.org:8443/ws" in words
    assert "https://node.example.org:8443/admin/" in words
