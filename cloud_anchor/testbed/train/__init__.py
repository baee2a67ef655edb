"""Training of the testbed's models from scratch: `python -m cloud_anchor.testbed.train`."""
