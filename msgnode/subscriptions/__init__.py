"""The subscription manager: who wants to hear what is sent to an address."""
