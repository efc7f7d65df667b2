"""The servers and the framing they share."""
