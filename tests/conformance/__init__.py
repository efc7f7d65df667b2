"""The numbered cases of the wire, over real sockets."""
