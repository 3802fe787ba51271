"""The packed forest, the fitted model of every estimator."""

from .packed import Forest, load_with_header, package_versions
from .storage import ARRAYS

__all__ = ["ARRAYS", "Forest", "load_with_header", "package_versions"]
