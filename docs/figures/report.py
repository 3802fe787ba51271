"""Draw the thumbnail of the example of reports, as Chromium shows one.

    python docs/figures/report.py

writes ``report.png`` beside itself.
"""

import subprocess
import tempfile
from pathlib import Path

from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from skforest import ObliqueBoostingRegressor, describe


def main():
    """Write the report, and the picture."""
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    X["sex"] = X["sex"].map({1.0: "female", 2.0: "male"})
    X, X_test, y, y_test = train_test_split(X, y, random_state=0)
    model = ObliqueBoostingRegressor(random_state=0).fit(X, y)
    report = describe(model, X_test, y_test, X_train=X, y_train=y)
    report.sections = [one for one in report.sections if one.title in ("Scores", "Effects")]
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "report.html")
        report.save(page)
        options = "--headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1000,720"
        picture = f"--screenshot={Path(__file__).with_suffix('.png')}"
        command = ["chromium", *options.split(), f"--user-data-dir={folder}/user", picture]
        subprocess.run([*command, page.as_uri()], check=True, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
