"""Exact Shapley values of oblique splits."""
