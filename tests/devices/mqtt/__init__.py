"""Devices and sensors behind an MQTT broker.

- test_topics: names of topics, objects and readings (pure)
- test_claims, test_device_frames, test_broker: the connector with a broker of the test's own, or
  one that lies (lying_broker.py)
- test_connector, test_requests, test_refusals: cases 25 to 29 with Mosquitto and a node
- test_seams: the broker ends, freezes, floods; workers take over
"""
