"""Devices without a WebSocket: sessions over HTTP, with server-sent events or long polls."""
