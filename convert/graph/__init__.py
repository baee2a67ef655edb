"""A variant's graph: operators, weights, quantisation."""
