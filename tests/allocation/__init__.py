"""Tests of address allocation."""
