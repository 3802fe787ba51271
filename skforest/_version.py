"""The one place where the version of skforest is written."""

__version__ = "0.1.0"
