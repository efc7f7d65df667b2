"""The global registry: signed records of users, found by GUID."""
