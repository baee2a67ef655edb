"""Questions with checkable answers, and their judges."""
