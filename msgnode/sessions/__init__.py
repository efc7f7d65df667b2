"""Session management: sockets become sessions, sessions outlive sockets."""
