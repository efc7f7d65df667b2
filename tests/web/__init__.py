"""Proxies and headers."""
