"""Trees with soft splits, trained from end to end."""
