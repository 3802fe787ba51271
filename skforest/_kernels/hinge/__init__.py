"""Trees of margins that are trained together, and their layer for PyTorch."""
