"""Cython kernels: no scikit-learn, no validation, no Python object inside a loop."""
