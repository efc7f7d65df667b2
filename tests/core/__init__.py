"""Tests of the pure vocabulary: addresses and messages."""
