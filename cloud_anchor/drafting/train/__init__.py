"""Training of a block drafter: `python -m cloud_anchor.drafting.train`."""
