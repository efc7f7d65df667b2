"""Who somebody is: tokens, keys, issuers, the node's own provider, API keys, cards.

- test_reading, test_verifier, test_jwks: rules, with issuers that are played; no node
- test_bindings: the token that one runtime said is no other's, with a database, at two workers
- test_provider, test_provider_answers, test_embedded_provider: OpenID Connect over Django's test
  client
- test_cards, test_api_keys, test_password, test_login: pages and endpoints, the same way

Over sockets: cases 71 to 87 in tests/conformance; at two workers:
tests/e2e/test_identity_workers.py.
"""
