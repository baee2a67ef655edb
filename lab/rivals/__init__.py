"""What a sceptic would do instead, on the same questions and over the same links."""
