"""Estimators: parameters, their documentation and settings, and which method trains."""
