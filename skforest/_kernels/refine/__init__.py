"""Alternating refinement of the splits of a tree."""
