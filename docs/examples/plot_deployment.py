"""
Save and deploy a model
=======================

A fitted model can be saved without pickle, called for one row at a time, and written as C or ONNX.
Each of these contains the treatment of missing values and categories.
"""

import tempfile
from pathlib import Path
from timeit import repeat

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skforest import ObliqueBoostingRegressor, load, save, to_c

rng = np.random.default_rng(0)
flats = pd.DataFrame({
    "area": rng.gamma(9, 8, size=800).round(),
    "floor": rng.integers(0, 6, size=800).astype(float),
    "district": rng.choice(["centre", "north", "south"], size=800),
})  # fmt: skip
rent = 300 + 9 * flats["area"] + 150 * (flats["district"] == "centre")
flats.loc[::10, "floor"] = np.nan
model = ObliqueBoostingRegressor(n_bags=1, random_state=0).fit(flats, rent)

# %%
# ``load`` runs no code from the file, so it is safe for files from others, too.

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "rents.npz")
    save(model, path)
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")
    model = load(path)

# %%
# A service gets one row at a time. ``predictor`` returns a function for this case. It takes arrays
# that ``encode`` makes from rows of a table, and dicts, such as JSON objects, which take longer.

row = {"area": 60, "floor": None, "district": "south"}
predictor = model.predictor()
print("predict:  ", model.predict([row]).round(2))
print("predictor:", predictor(row).round(2))

frame = flats[:1]
array = predictor.encode(frame)[0]
calls = {
    "predict, data frame": lambda: model.predict(frame),
    "predict, dict": lambda: model.predict([row]),
    "predictor, dict": lambda: predictor(row),
    "predictor, array": lambda: predictor(array),
}
times = {
    name: 1e6 * min(repeat(call, number=50, repeat=5)) / 50
    for name, call in calls.items()
}
fig, ax = plt.subplots(figsize=(6, 2.4), layout="constrained")
bars = ax.barh(list(times), list(times.values()))
ax.bar_label(bars, fmt="%.0f", padding=3)
ax.set(xlabel="microseconds to predict one row", xscale="log")
ax.invert_yaxis()
ax.margins(x=0.15)

# %%
# The same model as a function of C99. ``to_onnx(model, "rents.onnx")`` writes a graph for
# onnxruntime; it needs the extra ``onnx``.

source = to_c(model, name="rent")
print(source[: source.index("*/") + 2])

# %%
# :doc:`/guide/deploy` compares these ways.
