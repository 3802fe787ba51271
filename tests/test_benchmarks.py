"""Benchmarks, their stored results and the pages that show them agree; nothing is measured.

Reads the source tree, so there is nothing to run it on beside an installed wheel.
"""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
if not (ROOT / "benchmarks").exists():
    pytest.skip("there are no benchmarks beside the tests", allow_module_level=True)
sys.path.insert(0, str(ROOT))

from benchmarks import report  # noqa: E402
from benchmarks.lib import comparison, groups, models, results, scores  # noqa: E402
from skforest import CO2ForestClassifier, CO2Procedure  # noqa: E402

PAGES = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), ROOT / "benchmarks" / "README.md"]
COMMAND = re.compile(r"((?:measure|compare|papers)\.[a-z0-9]+)(?![\w:.])(?:\s+([a-z][a-z0-9-]*))?")
KINDS = ("TABLES", "FIGURES")


@pytest.fixture(scope="module")
def scripts():
    """All scripts, imported without the libraries that the documentation is built without."""
    with pytest.MonkeyPatch.context() as patch:
        for name in "lightgbm catboost torch dask distributed psutil shap".split():
            patch.setitem(sys.modules, name, None)
        return report.scripts()


def groups_of(script):
    return [groups.name_of(function) for function in script.GROUPS]


def test_pages_show_what_scripts_make_and_all_of_it(scripts):
    made = {f"{name}.inc" for name in report.made("TABLES")}
    made |= {f"{name}.png" for name in report.made("FIGURES")}
    shown = set()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        shown |= set(re.findall(r"(?:include:: |\]\()/performance/(\S+\.(?:inc|png))", text))
    assert shown == made
    n_made = sum(len(getattr(s, kind, ())) for s in scripts.values() for kind in KINDS)
    assert n_made + 1 == len(made), "two scripts make a table of the same name"  # + environments


def test_every_table_has_rows_as_wide_as_its_head(scripts):
    stored = results.Rows()
    for name, table in report.made("TABLES").items():
        head, rows = table(stored)
        assert rows, name
        assert {len(row) for row in rows} == {len(head)}, name
        assert all(any(row[1:]) for row in rows), name


def test_a_picture_is_a_figure(scripts):
    stored = results.Rows()
    for name in ("paper_nongreedy_inference", "peers_ranks"):
        figure = report.made("FIGURES")[name](stored)
        assert all(axes.has_data() for axes in figure.axes), name


def test_a_missing_result_names_the_command_that_measures_it(scripts, tmp_path):
    stored = results.Rows(tmp_path)
    for kind in KINDS:
        for module in scripts.values():
            for make in getattr(module, kind, {}).values():
                with pytest.raises(results.MissingResult, match="is not stored: run") as error:
                    make(stored)
                script, group = COMMAND.search(str(error.value).partition("run ")[2]).groups()
                assert group in groups_of(scripts[script])


def test_a_missing_row_is_an_error_where_others_of_its_group_are_stored(tmp_path):
    row = {"value": 1.0, "command": "python -m benchmarks.measure.co2 size"}
    results.write(tmp_path / "measure" / "co2.json", {"size/model-float32": row})
    stored = results.Rows(tmp_path)
    assert stored["measure.co2:size/model-float32"] == row
    assert stored.get("measure.co2:size/file-float32") is None
    with pytest.raises(results.MissingResult, match="size/file.*benchmarks.measure.co2 size"):
        stored["measure.co2:size/file-float32"]
    with pytest.raises(results.MissingResult, match="benchmarks.measure.co2 errors"):
        stored.get("measure.co2:errors/usps-10")


def test_rows_begin_with_their_group_and_scripts_describe_them(scripts):
    for name, script in scripts.items():
        found = {row.partition("/")[0] for row in getattr(script, "MEASURES", ())}
        assert found <= set(groups_of(script)), name
        path = results.FOLDER / f"{name.replace('.', '/')}.json"
        for row, entry in results.read(path).items():
            assert entry["command"].startswith(f"{results.PYTHON}{name}"), row
            if hasattr(script, "MEASURES"):
                assert row in script.MEASURES, row


def test_changes_of_a_procedure_leave_the_parameters_of_others_as_they_are():
    printed = {"nu": 4.0, "bootstrap": True, "procedure": CO2Procedure.as_printed()}
    changed = models.with_changes(printed, {"nu": 1.0, "scaling": "standard", "n_epochs": 5})
    assert printed == {"nu": 4.0, "bootstrap": True, "procedure": CO2Procedure.as_printed()}
    own = CO2Procedure.as_printed(scaling="standard", n_epochs=5)
    assert changed == {"nu": 1.0, "bootstrap": True, "procedure": own}
    assert CO2ForestClassifier(**changed).procedure.n_epochs == 5


def test_losses_are_compared_by_table_whatever_their_kind():
    """1 - AUC of two classes, the log loss of more, errors of regression."""
    y = np.array([0, 0, 1, 1])
    proba = np.array([[0.9, 0.1], [0.4, 0.6], [0.5, 0.5], [0.2, 0.8]])
    assert scores.loss(y, proba) == pytest.approx(25)
    assert np.isnan(scores.loss(y[:2], proba[:2]))
    three = np.column_stack([proba, np.zeros(4)])
    assert scores.loss(y, three) == scores.log_loss(y, three) == scores.log_loss(y, proba)
    tasks = {"classification": ["a", "b"], "regression": ["c"]}
    losses = {"a": [25.0, 5.0], "b": [0.3, 0.3], "c": [50.0, 50.0]}
    own = {name: [value / 2 for value in values] for name, values in losses.items()}
    runs = {name: {"errors": found, "seconds": found, "losses": found} for name, found in
            (("RandomForest", losses), ("CatBoost", own), ("LightGBM", losses))}  # fmt: skip
    runs["LightGBM"] = runs["LightGBM"] | {"losses": {"a": [1.0, 1.0]}}
    found = comparison.summary(runs, tasks)
    assert found["CatBoost"]["losses"] == pytest.approx(0.5, abs=0.01)
    assert found["LightGBM"]["losses"] is None


def test_commands_in_texts_exist(scripts):
    sources = [*PAGES, *(ROOT / "skforest").rglob("*.py"), *ROOT.glob("benchmarks/*/*.py")]
    n_found = 0
    for path in sources:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"benchmarks/(?!demo)\w+\.py", text), path
        for match in re.finditer(r"(?:-m\s+benchmarks\.|`)" + COMMAND.pattern, text):
            assert match[1] in scripts, f"{path}: {match[0]}"
            assert match[2] in (None, *groups_of(scripts[match[1]])), f"{path}: {match[0]}"
            n_found += 1
    assert n_found > 50


def test_the_table_of_the_readme_has_the_stored_errors(scripts):
    summary = comparison.summary(results.Rows().file("compare.peers_tables", "tables"))
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.search(r"\| Model.*?\n\n", text, re.DOTALL)[0]
    shown = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[2:-1]]
    for name, *row in shown:
        found = summary.pop(re.sub(r"scikit-learn | \(.*|`", "", name))
        kinds = ("classification", "regression")
        assert row[:2] == [f"{found[k]:.2f} ({found[f'{k}_median']:.2f})" for k in kinds], name
        if name != "scikit-learn `RandomForest`":
            assert row[2] == f"{found['better']} of 32 tables", name
        assert row[3] == f"{found['time']:.1f}", name
    assert not summary


def test_the_readme_begins_with_the_tested_example_of_the_documentation():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    code, output = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", readme, re.DOTALL).groups()
    assert f"```{{testcode}}\n{code}```" in index
    assert f"\n\n{output}```" in re.search(r"```{testoutput}.*?```", index, re.DOTALL)[0]
    # Without pandas, `leaderboard_` is a dict, which takes no list of columns.
    for text in (readme, index):
        assert "leaderboard_[[" not in code or "pip install . pandas" in text
