"""The version of everything in this tree: its distributions read it here, and their pins of each other."""

__version__ = "0.2.0"
