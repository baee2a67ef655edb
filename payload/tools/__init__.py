"""Commands over payloads: inspect, codec benchmark, training of the token model."""
