"""HTTP client of the anchor service."""
