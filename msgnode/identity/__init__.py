"""Identity: issuers and verification, the embedded OpenID provider, login, API keys."""
