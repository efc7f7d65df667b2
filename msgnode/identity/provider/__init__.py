"""The embedded OpenID provider, and the log-in of the domain's users."""
