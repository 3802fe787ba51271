"""Rows, memory, random numbers, directions and sums that all kernels share."""
