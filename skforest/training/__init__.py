"""Training of the splits and leaves of a tree, or of all trees, together."""
