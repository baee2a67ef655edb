"""What a conversion is held to: free space before it, the original model after it."""
