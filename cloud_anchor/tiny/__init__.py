"""The tiny pair: a generated world, two models that the project trains on it, and their evaluation."""
