"""Release of a testbed run as the shipped pair: `python -m cloud_anchor.testbed.ship`."""
