"""The compared models with default settings, and tables in the form of each model.

XGBoost, ChimeraBoost, RealMLP and AutoGluon are not installed with the extra ``bench``; scripts
skip models whose package is missing. ``benchmarks/README.md`` says how to install them.
"""

import importlib
import tempfile
from dataclasses import dataclass, field

import numpy as np
from sklearn.base import clone

REFERENCE = "RandomForest"
ONE_THREAD = {"n_jobs": 1}


@dataclass(frozen=True)
class Model:
    """Names of a classifier and a regressor, and their arguments.

    Parameters
    ----------
    module : str
        Where both are imported from.
    classifier, regressor : str
    parameters : dict
        One thread, and no output.
    package : str, optional
        The package that must be installed; by default `module`.
    with_categories : dict
        Further parameters for tables with categories.
    names_categories : bool
        Whether the categories are strings in columns that the parameter ``cat_features`` names.
        Otherwise they are columns of pandas' categorical dtype.
    n_threads : int
        Threads of a fit.
    for_quick_run : dict
        Further parameters for quick runs.
    """

    module: str
    classifier: str
    regressor: str
    parameters: dict = field(default_factory=lambda: ONE_THREAD)
    package: str | None = None
    with_categories: dict = field(default_factory=dict)
    names_categories: bool = False
    n_threads: int = 1
    for_quick_run: dict = field(default_factory=dict)

    def is_installed(self):
        """Whether the package of the model can be imported."""
        try:
            importlib.import_module(self.package or self.module)
        except ImportError:
            return False
        return True

    def make(self, task, seed, is_categorical=None, is_quick=False):
        """Return an untuned estimator.

        Parameters
        ----------
        task : {"classification", "regression"}
        seed : int
        is_categorical : ndarray of bool, optional
            Which columns are categories, if the table is one of `frame`.
        is_quick : bool
            Whether the run only shows that everything works.
        """
        name = self.regressor if task == "regression" else self.classifier
        parameters = self.parameters | {"random_state": seed}
        parameters |= self.for_quick_run if is_quick else {}
        if is_categorical is not None and is_categorical.any():
            parameters |= self.with_categories
            if self.names_categories:
                parameters["cat_features"] = np.flatnonzero(is_categorical).tolist()
        return getattr(importlib.import_module(self.module), name)(**parameters)

    def frame(self, X, is_categorical, levels):
        """Convert a table of numbers to a DataFrame with categories, in the form of the model.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features)
            Integer codes for categories, NaN for missing values.
        is_categorical : ndarray of shape (n_features,), bool
        levels : list of ndarray
            For each column, its values in the training rows. Other values become missing.
        """
        import pandas as pd

        table = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
        for j in np.flatnonzero(is_categorical):
            names = [str(value) for value in levels[j]]
            column = pd.Categorical.from_codes(_codes(X[:, j], levels[j]), names)
            if self.names_categories:
                column = column.add_categories("missing").astype(object)
                column = np.where(pd.isna(column), "missing", column)
            table[f"x{j}"] = column
        return table


def _codes(column, levels):
    """Return the position of each value in the sorted levels, -1 for others and for NaN."""
    at = np.searchsorted(levels, column).clip(max=len(levels) - 1)
    return np.where(levels[at] == column, at, -1) if len(levels) else np.full(len(column), -1)


class AutoGluonRegressor:
    """AutoGluon as a scikit-learn estimator.

    Parameters
    ----------
    presets : str
    time_limit : float
        Seconds of a fit.
    n_threads : int
    random_state : int
        Not used: AutoGluon has fixed seeds.
    """

    def __init__(self, presets="best_quality", time_limit=60, n_threads=2, random_state=None):
        self.presets = presets
        self.time_limit = time_limit
        self.n_threads = n_threads
        self.random_state = random_state

    def fit(self, X, y):
        """Fit in a temporary folder, which is deleted with the estimator."""
        from autogluon.tabular import TabularPredictor

        self.folder = tempfile.TemporaryDirectory()
        self.predictor = TabularPredictor("y", path=self.folder.name, verbosity=0)
        self.predictor.fit(
            self._table(X).assign(y=y),
            presets=self.presets,
            time_limit=self.time_limit,
            num_cpus=self.n_threads,
            num_gpus=0,
        )
        return self

    def predict(self, X):
        """Return predictions of the ensemble."""
        return self.predictor.predict(self._table(X)).to_numpy()

    def _table(self, X):
        import pandas as pd

        if isinstance(X, pd.DataFrame):
            return X
        return pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])


class AutoGluonClassifier(AutoGluonRegressor):
    """AutoGluon for classes."""

    def fit(self, X, y):
        """Fit, and store the classes that the ensemble predicts, without some rare ones."""
        super().fit(X, y)
        self.classes_ = np.array(self.predictor.class_labels)
        return self

    def predict_proba(self, X):
        """Return probabilities of the ensemble."""
        return self.predictor.predict_proba(self._table(X)).to_numpy()


def _ours(name):
    return Model("skforest", f"{name}Classifier", f"{name}Regressor")


MODELS = {
    REFERENCE: Model("sklearn.ensemble", "RandomForestClassifier", "RandomForestRegressor"),
    "HistGradientBoosting": Model(
        *("sklearn.ensemble", "HistGradientBoostingClassifier", "HistGradientBoostingRegressor"),
        parameters={},
    ),
    "LightGBM": Model(
        *("lightgbm", "LGBMClassifier", "LGBMRegressor"), parameters=ONE_THREAD | {"verbose": -1}
    ),
    "XGBoost": Model(
        *("xgboost", "XGBClassifier", "XGBRegressor"),
        with_categories={"enable_categorical": True},
    ),
    "CatBoost": Model(
        *("catboost", "CatBoostClassifier", "CatBoostRegressor"),
        parameters={"thread_count": 1, "verbose": 0, "allow_writing_files": False},
        names_categories=True,
    ),
    "ChimeraBoost": Model(
        *("chimeraboost", "ChimeraBoostClassifier", "ChimeraBoostRegressor"),
        parameters={"thread_count": 1, "ensemble_n_jobs": 1},
        names_categories=True,
    ),
    "RealMLP": Model(
        *("pytabkit", "RealMLP_TD_Classifier", "RealMLP_TD_Regressor"),
        parameters={"device": "cpu", "n_threads": 1},
    ),
    "AutoGluon": Model(
        *("benchmarks.lib.models", "AutoGluonClassifier", "AutoGluonRegressor"),
        parameters={},
        package="autogluon",
        n_threads=2,
        for_quick_run={"presets": "medium_quality", "time_limit": 10},
    ),
    "ManifoldForest": _ours("ManifoldForest"),
    "CO2Forest": _ours("CO2Forest"),
    "E2EDecisionForest": _ours("E2EDecisionForest"),
    "RandomHingeForest": _ours("RandomHingeForest"),
    "ObliqueBoosting": _ours("ObliqueBoosting"),
    "BlendedForest": _ours("BlendedForest"),
}
OURS = [name for name, model in MODELS.items() if model.module == "skforest"]
BLEND = "BlendedForest"
# The kinds of forests that a blend has by default.
MEMBERS = ["ManifoldForest", "CO2Forest", "RandomHingeForest", "ObliqueBoosting"]


def with_changes(parameters, changes):
    """Return parameters of an estimator with changes of them and of its procedure.

    Parameters
    ----------
    parameters : dict
        Has a "procedure", which stays as it is.
    changes : dict
        Parameters of the estimator, and of the procedure, by their names.

    Returns
    -------
    dict
    """
    procedure = clone(parameters["procedure"])
    own = {name: value for name, value in changes.items() if name in procedure.get_params()}
    others = {name: value for name, value in changes.items() if name not in own}
    return parameters | others | {"procedure": procedure.set_params(**own)}
