"""Tests of data objects, with a conftest of their own."""
