"""The policy language and its evaluation. Pure."""
