"""Networks with a clock of their own, and conversations over them."""
