"""Boosted trees over binned directions, with linear leaves."""
