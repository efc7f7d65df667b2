"""Quality of service: relayed paths with booked bandwidth, asked for at domain://qos.<domain>."""
