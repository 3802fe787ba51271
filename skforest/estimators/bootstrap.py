"""Bootstrap samples and out-of-bag scores."""

import numpy as np

from .._kernels.base.rows import tree_seed
from .._warnings import warn_caller
from ..training.method import n_members
from .base import BaseForest, Integral, Interval, RealNotInt


class BootstrapMixin:
    """Bootstrap samples and out-of-bag scores; before `BaseForest` in the list of bases."""

    _parameter_constraints: dict = {
        "bootstrap": ["boolean"],
        "max_samples": [
            None,
            Interval(RealNotInt, 0.0, 1.0, closed="right"),
            Interval(Integral, 1, None, closed="left"),
        ],
        "oob_score": ["boolean"],
    }
    _how_to_hold_out = f"pass bootstrap=True and oob_score=True, or {BaseForest._how_to_hold_out}"

    def _validate_fit(self, X, y, sample_weight, known_levels=None):
        for name, is_default in (
            ("oob_score", not self.oob_score),
            ("max_samples", self.max_samples is None),
        ):
            if not is_default and not self.bootstrap:
                raise ValueError(
                    f"{name}={getattr(self, name)} needs bootstrap=True; without a bootstrap "
                    "every tree is trained on all rows"
                )
        return super()._validate_fit(X, y, sample_weight, known_levels)

    def _sampling(self, bootstrap=None):
        """Members draw bootstrap samples, or all rows; "auto": as fitted."""
        if bootstrap is None:
            bootstrap = self.bootstrap_ if self.bootstrap == "auto" else self.bootstrap
        return super()._sampling(bootstrap)

    def _finish_fit(self, method, data, trained):
        super()._finish_fit(method, data, trained)
        if self.oob_score:
            self._set_oob(method.sampling, data)

    def _set_oob(self, sampling, data):
        """Predict every row with the members that did not draw it; set the oob attributes.

        If rows have copies, a member counts with the share of the copies that it did not draw, and
        a row with the share that any member did not draw.
        """
        first = vars(self).get("_samples", {}).get("first", 0)
        drawn_by_all = np.ones(len(data))

        def share_left(number):
            if number < first:  # it was trained on other rows, which may be among these
                return np.zeros(len(data))
            share = sampling.share_left(data, tree_seed(self._seed, number))
            drawn_by_all[:] *= 1 - share
            return share

        response, known = self._mean_response(data, share_left)
        unit = "bags" if hasattr(self, "n_bags") else "trees"
        if not known.any():
            raise ValueError(
                f"oob_score=True: each of the {n_members(self.forest_) - first} {unit} drew all "
                f"{len(data)} distinct rows, so none is left to score; train more {unit} or lower "
                "max_samples"
            )
        if not known.all():
            warn_caller(
                f"Some inputs do not have OOB scores. This probably means too few {unit} were "
                "used to compute any reliable OOB estimates."
            )
        of_samples = data.of_samples(response)
        count = (data.count * (1 - drawn_by_all))[known]
        y, response = data.y[known], response[known]
        self._set_oob_attributes(of_samples, response, y, count)
        self._keep_scores(y, response, count)
