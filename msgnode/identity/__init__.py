"""Who speaks: issuers and verification, the embedded OpenID provider, log-in, API keys."""
