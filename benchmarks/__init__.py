"""Benchmarks: each script is a command, ``python -m benchmarks.papers.co2``; see README.md."""
