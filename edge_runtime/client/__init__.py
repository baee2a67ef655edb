"""HTTP client of the anchor service."""

KEY_VARIABLE = "CLOUD_ANCHOR_KEY"
"""Environment variable of a service's key."""
