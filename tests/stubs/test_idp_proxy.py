"""The identity proxy in the catalogue: found by the domain, configured, and without a secret."""

from __future__ import annotations

import json

import pytest
from django.test import Client

PLACE = "/.well-known/idp-proxy"


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST", "default"])
def test_it_is_found_by_the_domain(client: Client, name: str) -> None:
    descriptor = client.get(f"{PLACE}/{name}").json()
    assert (descriptor["type"], descriptor["idpProxy"]) == ("IDP_PROXY", True)
    assert (
        descriptor["sourcePackage"]["sourceCode"]
        == client.get(f"{PLACE}/{name}.idp.js").content.decode()
    )
    assert client.get(f"{PLACE}/{name}.idp.json").json()["version"] == descriptor["version"]


def test_its_configuration_leads_to_the_provider_and_has_no_secret(client: Client) -> None:
    answer = client.get(f"{PLACE}/localhost", headers={"origin": "https://elsewhere.example"})
    assert answer["Access-Control-Allow-Origin"] == "*"
    configuration = answer.json()["configuration"]
    assert configuration["domain"] == "localhost"
    discovered = client.get("/o/.well-known/openid-configuration").json()
    assert configuration["authorisation"] == discovered["authorization_endpoint"]
    assert configuration["token"] == discovered["token_endpoint"]
    assert configuration["tokenInfo"] == discovered["tokeninfo_endpoint"]
    assert configuration["jwks"] == discovered["jwks_uri"]
    assert "secret" not in json.dumps(configuration).lower()


def test_listings_and_unknown_names(client: Client) -> None:
    assert client.get(f"{PLACE}/").json() == ["default"]
    assert client.get(f"{PLACE}/example.org").status_code == 404
    assert client.get(f"{PLACE}/default.ps.js").status_code == 404
    assert "idp-proxy" not in client.get("/.well-known/protocolstub/").content.decode()
