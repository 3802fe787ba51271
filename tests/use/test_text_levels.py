"""Rules of splits of categories: the sides of missing values and of unknown levels."""

import numpy as np
import pandas as pd

from skforest import ManifoldForestRegressor, export_text


def test_missing_values_and_unknown_levels_on_different_sides():
    rng = np.random.default_rng(3)
    city = rng.choice(["a", "b", "c", "d", "e"], size=60).astype(object)
    city[rng.random(60) < 0.2] = None
    X = pd.DataFrame({"city": city})
    y = pd.Series(city).map({"a": 0, "b": 1, "c": 2, "d": 3, "e": 4}).fillna(0.0)
    tree = ManifoldForestRegressor(
        1, max_depth=1, projection="axis", bootstrap=False, random_state=3
    )
    rules = export_text(tree.fit(X, y)).splitlines()
    unseen, missing = tree.predict(pd.DataFrame({"city": ["unseen", None]}))
    assert unseen > 2 > 1 > missing
    assert rules[0] == "|--- city in {a, b, (missing)}"
    assert rules[2] == "|--- city in {c, d, e, (other)}"
