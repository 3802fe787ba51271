"""Members of a blend as its parameters: ``set_params(name__parameter=...)``."""

from sklearn.utils import get_tags

from .._docs import with_texts
from .leaderboard import BLEND, CONSTANT, FOREST


def is_estimator(value):
    """Is it an estimator of scikit-learn's kind? Those of CatBoost are no `BaseEstimator`."""
    return hasattr(value, "get_params") and not isinstance(value, type)


@with_texts()
class MemberParameters:
    """Parameters and tags of estimators with named `members`; before all other base classes."""

    def _pairs(self):
        """Entries ``(name, estimator)`` of `members`, unless the name is that of a parameter."""
        entries = self.members if isinstance(self.members, (list, tuple)) else ()
        pairs = [item for item in entries if isinstance(item, tuple) and len(item) == 2]
        own = self._get_param_names()
        return {k: v for k, v in pairs if is_estimator(v) and k not in own}

    def get_params(self, deep=True):
        """Parameters by name.

        Parameters
        ----------
        deep : bool, default=True
            Whether to add named members, and their parameters as ``name__parameter``.

        Returns
        -------
        params : dict of str to object
        """
        params = super().get_params(deep=False)
        for name, estimator in self._pairs().items() if deep else ():
            own = estimator.get_params().items()
            params |= {name: estimator} | {f"{name}__{key}": value for key, value in own}
        return params

    def set_params(self, **params):
        """Set parameters; ``name`` is a member, and ``name__parameter`` one of its parameters.

        {returns_self}
        """
        if "members" in params:  # first, so that parameters are those of the new ones
            self.members = params.pop("members")
        if others := {name: params.pop(name) for name in self._pairs() if name in params}:
            is_new = [isinstance(item, tuple) and item[0] in others for item in self.members]
            self.members = [
                (item[0], others[item[0]]) if new else item
                for item, new in zip(self.members, is_new)
            ]
        return super().set_params(**params)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        estimators = () if isinstance(self.members, str) else self.members
        for item in estimators:
            estimator = item[-1] if isinstance(item, tuple) else item
            if is_estimator(estimator):
                own = get_tags(estimator)
                tags.target_tags.multi_output &= own.target_tags.multi_output
        if tags.classifier_tags is not None:
            tags.classifier_tags.multi_label = tags.target_tags.multi_output
        return tags


def check_names(members, parameters):
    """Raise ValueError if a member cannot have its name.

    The parameters of the member could not be set, or the leaderboard has another row of that name.
    `members` is the parameter of a blend; `parameters` has the names of all its parameters.
    """
    entries = members if isinstance(members, (list, tuple)) else ()
    for name in [item[0] for item in entries if isinstance(item, tuple) and len(item) == 2]:
        if name in parameters:
            raise ValueError(f"members contains the name {name!r}, which is also a parameter")
        if isinstance(name, str) and "__" in name:
            raise ValueError(f"members contains the name {name!r}, which must not contain '__'")
        if name in (BLEND, CONSTANT, FOREST):
            raise ValueError(
                f"members contains the name {name!r}; the leaderboard has another row of this name"
            )
