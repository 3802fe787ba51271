import numpy as np
import numpy.typing as npt

class HingePass:
    def __init__(
        self,
        threshold: npt.NDArray[np.float32],
        feature: npt.NDArray[np.int64],
        leaf: npt.NDArray[np.float32],
        share: npt.NDArray[np.float32],
        depth: int,
        fern: bool,
    ) -> None: ...
    def answer(
        self, z: npt.NDArray[np.float32], apart: bool, keep: bool
    ) -> npt.NDArray[np.float32]: ...
    def gradients(
        self, g: npt.NDArray[np.float32], sparse: bool
    ) -> tuple[
        npt.NDArray[np.float32],
        npt.NDArray[np.float32],
        npt.NDArray[np.float32],
        npt.NDArray[np.int64] | None,
    ]: ...
