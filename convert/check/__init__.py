"""What a conversion is held to: the original model's answers, and how much a variant differs."""
