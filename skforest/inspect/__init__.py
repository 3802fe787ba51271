"""Fitted models looked at: explanations, plots, displays, texts, similarity."""
