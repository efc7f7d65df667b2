"""Networks that speak another protocol, such as XMPP, reached by a gateway in this node."""
