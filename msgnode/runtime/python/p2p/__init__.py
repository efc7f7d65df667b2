"""Direct connections between runtimes, over a WebRTC data channel."""
