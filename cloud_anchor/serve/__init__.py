"""The cloud side behind an address: payloads over HTTP, on one machine or on many."""
