"""Measuring and printing: what the command lines share."""
