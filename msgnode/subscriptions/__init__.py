"""The subscription manager: which sessions receive what is sent to an address."""
