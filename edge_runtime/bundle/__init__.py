"""Model bundles: manifest, verification, lookup."""
