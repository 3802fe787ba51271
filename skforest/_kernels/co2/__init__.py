"""Hyperplanes that are optimised by a convex-concave bound, and OC1."""
