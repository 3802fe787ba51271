"""
Effects of columns
==================

:class:`skforest.EffectDisplay` plots how the prediction depends on single columns, which may be
numbers, categories and dates, with missing values.
"""

import numpy as np
import pandas as pd
from sklearn.pipeline import make_pipeline

from skforest import DateFeatures, EffectDisplay, ObliqueBoostingRegressor

rng = np.random.default_rng(0)
n = 800
day = rng.integers(0, 730, size=n)
table = pd.DataFrame({
    "date": pd.Timestamp("2024-01-01") + pd.to_timedelta(day, unit="D"),
    "temperature": (12 - 11 * np.cos(2 * np.pi * day / 365) + rng.normal(0, 3, n)).round(1),
    "station": rng.choice(["centre", "harbour", "hill"], size=n),
    "holiday": rng.random(n) < 0.15,
})  # fmt: skip
bikes = 50 + 6 * table["temperature"] + 40 * (table["station"] == "harbour")
bikes += np.where(table["date"].dt.day_of_week > 4, 60, 0) * ~table["holiday"]
bikes += rng.normal(0, 15, size=n)
table.loc[rng.random(n) < 0.1, "temperature"] = np.nan
model = make_pipeline(
    DateFeatures(), ObliqueBoostingRegressor(random_state=0)
).fit(table, bikes)

# %%
# The temperature depends on the date, so partial dependence would predict frost in July.
# Accumulated local effects change each row only a little.

columns = ["temperature", "station", "holiday"]
display = EffectDisplay.from_estimator(model, table, columns, kind="ale")

# %%
# Curves of single rows show an interaction: on Saturdays and Sundays, a holiday makes a large
# difference, and on other days none. The mean hides it.

display = EffectDisplay.from_estimator(
    model, table, ["holiday", "station"], kind="both", centered=True
)

# %%
# A pair of columns is a map, or a line for each level.

pairs = [("temperature", "date"), ("temperature", "station")]
display = EffectDisplay.from_estimator(model, table, pairs)

# sphinx_gallery_thumbnail_number = 2
