"""Joint training of all splits of a tree."""
