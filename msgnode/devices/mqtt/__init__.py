"""Devices and sensors behind the operator's MQTT broker, of which the node is a client."""
