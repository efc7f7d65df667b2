"""Quality of service: relayed paths with reserved bandwidth, at domain://qos.<domain>."""
