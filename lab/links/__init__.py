"""Slow links: simulated in real time between service and device, and networks with a clock of their own."""
