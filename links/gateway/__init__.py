"""The gateway: answers questions that come over a link, with an anchor service: `python -m links.gateway`."""
