"""Devices and sensors behind an MQTT broker of the operator's, of which the node is a client."""
