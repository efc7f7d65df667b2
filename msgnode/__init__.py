"""The Messaging Node: sessions, addresses, subscriptions and the message bus of one domain."""
