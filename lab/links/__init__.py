"""Networks on a virtual clock, and conversations over them."""
