"""Floor 5: fitted soft trees, routed softly or hard."""

from __future__ import annotations

from copy import copy

import numpy as np
from sklearn.utils.validation import check_is_fitted

GATES = {"hard": "hard", "soft": "sigmoid"}


class RoutingMixin:
    """What estimators with a parameter `routing` share; not for direct use."""

    def _gated(self, forest, routing=None):
        """The same arrays with the gates of a way of routing; None: that of `routing`."""
        routing = self.routing if routing is None else routing
        if routing not in GATES:
            raise ValueError(f'routing={routing!r} must be "hard" or "soft"')
        gate = GATES[routing]
        return forest if forest.gate == gate else forest._with(forest.arrays, gate=gate)

    def routing_scores(self, X, y, sample_weight=None):
        """Scores with hard and with soft routing, and how far the two predictions are apart.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or (n_samples, \\*feature_shape)
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        scores : dict of str to float
            "hard" and "soft": what `score` returns with each `routing`. "gap": mean absolute
            difference of the two predictions, of probabilities or targets.
        """
        check_is_fitted(self, "forest_")
        scores, responses = {}, []
        for routing in GATES:
            other = copy(self)
            other.routing = routing
            scores[routing] = other.score(X, y, sample_weight)
            responses.append(other._response(X))
        return scores | {"gap": float(np.abs(responses[0] - responses[1]).mean())}
