from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

CONTRASTS: dict[str, int]

class Sampler:
    @property
    def max_taps(self) -> int: ...
    @property
    def max_nonzero(self) -> int: ...

class AxisSampler(Sampler):
    def __init__(self, n_features: int) -> None: ...

class SparseSampler(Sampler):
    def __init__(
        self, n_features: int, mean: float, fixed: bool, scale: npt.NDArray[np.float32]
    ) -> None: ...

class GaussianSampler(Sampler):
    def __init__(self, n_features: int) -> None: ...

class BoxSampler(Sampler):
    def __init__(
        self,
        feature_shape: Sequence[int],
        wrap: Sequence[bool] | npt.NDArray[np.bool_],
        unordered: Sequence[bool] | npt.NDArray[np.bool_],
        smallest: npt.NDArray[np.int32],
        largest: npt.NDArray[np.int32],
        contrast: str,
        inside: bool,
        reach: int = 8,
    ) -> None: ...

def draw(sampler: Sampler, seed: int, n: int) -> list[dict[str, Any]]: ...
