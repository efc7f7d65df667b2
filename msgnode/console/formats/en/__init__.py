"""Dates that sort and compare by eye."""
