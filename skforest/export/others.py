"""Objects of other packages in a file of an estimator, such as members of a blend: by skops.

skops makes objects of harmless types only, and of those that the user trusts.
"""

import numpy as np

from ..forest.io import as_value_error

NEEDS_SKOPS = "needs the package skops: pip install skops"


class OtherObjects:
    """Objects that the JSON of a file refers to by their numbers."""

    def __init__(self, found=()):
        self.found = list(found)
        self.names = None  # of the columns of X, to order matrices with labels

    def add(self, value):
        """The entry of JSON that refers to an object."""
        self.found.append(value)
        return {"other": len(self.found) - 1}

    def get(self, number):
        """The object with a number."""
        if type(number) is not int or not 0 <= number < len(self.found):
            raise ValueError(f"it has no object {number!r:.20}")
        return self.found[number]

    def content(self):
        """The objects as an array of bytes; None if there are none."""
        if not self.found:
            return None
        try:
            import skops.io
        except ImportError:
            kinds = sorted({type(value).__name__ for value in self.found})
            raise ImportError(f"saving {', '.join(kinds)} {NEEDS_SKOPS}") from None
        return np.frombuffer(skops.io.dumps(self.found), dtype=np.uint8)

    @classmethod
    def read(cls, content, path, trusted):
        """The objects of a file; `trusted` has the names of types that may be among them."""
        if content is None:
            return cls()
        try:
            import skops.io
        except ImportError:
            raise ImportError(f"{path} has objects of other packages, and {NEEDS_SKOPS}") from None
        content = content.tobytes()
        with as_value_error(f"{path} is damaged"):
            unknown = set(skops.io.get_untrusted_types(data=content)) - set(trusted)
        if unknown:
            raise TypeError(
                f"{path} has objects of types that are not trusted, {sorted(unknown)}: if you "
                "trust the file, pass trusted=[...] with their names"
            )
        with as_value_error(f"{path} is damaged"):
            return cls(skops.io.loads(content, trusted=sorted(trusted)))
