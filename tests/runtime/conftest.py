"""A browser for the tests of the runtime; modules that use it have no async tests."""

from tests.stubs.conftest import browser

__all__ = ["browser"]
