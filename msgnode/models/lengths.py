"""How long what is stored may be."""

from __future__ import annotations

ADDRESS_LENGTH = 600  # = core.addresses.MAX_HELD: an index entry of PostgreSQL takes 2,704 bytes
