"""How a payload's body is written: one module per codec, and what they share."""
