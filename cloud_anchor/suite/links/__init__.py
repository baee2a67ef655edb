"""Answers refined while they are written, over simulated slow links."""
