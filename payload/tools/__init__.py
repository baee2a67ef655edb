"""Command-line tools over payloads: inspect, codec benchmark, training of the token model."""
