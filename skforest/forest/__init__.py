"""The packed forest, the fitted model of every estimator."""

from .io import package_versions
from .packed import Forest, load_with_header
from .storage import ARRAYS

__all__ = ["ARRAYS", "Forest", "load_with_header", "package_versions"]
