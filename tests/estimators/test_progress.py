"""Progress of training: a bar with tqdm, lines of text without it, or nothing."""

import pickle
import re
import sys

import numpy as np
import pytest
from makers import made
from sklearn.base import clone, is_classifier

import skforest
from skforest.training import progress, threads
from skforest.training.method import Sampling


def task(estimator):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4))
    return X, X[:, 0] > 0 if is_classifier(estimator) else X[:, 0]


def fit(estimator, **params):
    return clone(estimator).set_params(**params).fit(*task(estimator))


@pytest.fixture
def without_tqdm(monkeypatch):
    """An import of it fails, as where it is not installed."""
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)


LINE = (
    r"(?P<name>\w+): (?P<done>\d+) of (?P<total>\d+) (?P<unit>tree|bag|epoch|round|evaluation)s, "
    r"(?P<rate>[\d.]+) (?P=unit)s/s, (?P<left>\d+) s left"
    r"(?:, loss (?P<loss>\S+), best (?P<best>\S+))?"
)


NOTE = r"\w+: (stopped early(, best \w+ \d+)?|training again on all rows)$"


def lines(capsys):
    out, err = capsys.readouterr()
    assert err == ""
    found = [re.fullmatch(LINE, line) for line in out.splitlines() if not re.search(NOTE, line)]
    assert all(found), out
    return [match.groupdict() for match in found]


def test_silent_by_default(estimator, capfd):
    fit(estimator)
    fit(estimator, verbose=0)
    fit(estimator, verbose=False)
    assert capfd.readouterr() == ("", "")


@pytest.mark.needs("min_weight_fraction_leaf")
def test_lines_of_text_without_tqdm(estimator, capsys, without_tqdm):
    fit(estimator, verbose=1, n_estimators=40)
    shown = lines(capsys)
    assert [int(line["done"]) for line in shown] == [4, 8, 12, 16, 20, 24, 28, 32, 36, 40]
    for line in shown:
        assert line["name"] == type(estimator).__name__
        assert line["total"] == "40"
        assert float(line["rate"]) > 0
    assert shown[-1]["left"] == "0"


@pytest.mark.parametrize("n_estimators, n_lines", [(7, 7), (10, 10), (25, 13), (39, 13)])
@pytest.mark.needs("min_weight_fraction_leaf")
def test_about_ten_lines(estimator, capsys, without_tqdm, n_estimators, n_lines):
    fit(estimator, verbose=1, n_estimators=n_estimators)
    shown = lines(capsys)
    assert len(shown) == n_lines
    assert shown[-1]["done"] == str(n_estimators)


@pytest.mark.needs("min_weight_fraction_leaf")
def test_a_single_tree_counts_epochs(estimator, capsys, without_tqdm):
    jointly = {"finetune_epochs": 25, "refine": skforest.NonGreedyTreeClassifier(n_epochs=25)}
    jointly = {name: value for name, value in jointly.items() if name in estimator.get_params()}
    for params in ({}, jointly):
        if "finetune_epochs" in jointly and not params:
            continue
        fit(estimator, verbose=1, n_estimators=1, **params)
        shown = lines(capsys)
        assert {line["unit"] for line in shown} == {"epoch" if params else "tree"}
        done = list(range(2, 25, 2)) + [25] if params else [1]
        assert [int(line["done"]) for line in shown] == done


@pytest.mark.needs("min_weight_fraction_leaf")
def test_a_line_for_every_tree(estimator, capsys, without_tqdm):
    fit(estimator, verbose=2, n_estimators=40)
    assert [int(line["done"]) for line in lines(capsys)] == list(range(1, 41))


def test_rounds_and_bags_of_boosting(capsys, without_tqdm):
    """A single bag that is trained again is counted again, up to its own number of rounds."""
    X, y = np.random.default_rng(0).normal(size=(100, 3)), np.arange(100) % 7
    options = {"learning_rate": 0.01, "linear_start": None, "verbose": 2, "random_state": 0}
    model = skforest.ObliqueBoostingRegressor(4, n_bags=1, **options).fit(X + y[:, None], y)
    out = capsys.readouterr().out
    shown = [re.fullmatch(LINE, line) or line for line in out.splitlines()]
    assert shown.pop(4) == "ObliqueBoostingRegressor: training again on all rows"
    shown = [line.group("done", "total", "unit", "loss") for line in shown]
    expected = [(str(n), str(total), "round") for total in (4, 5) for n in range(1, total + 1)]
    assert [line[:3] for line in shown] == expected and model.n_iter_ == [5]
    losses = [f"{-score:.4g}" for score in model.validation_scores_[0][1:]]
    assert [line[3] for line in shown] == losses + 5 * [None]


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_rounds_of_all_bags_are_counted(capsys, without_tqdm, n_jobs):
    X, y = np.random.default_rng(0).normal(size=(100, 3)), np.arange(100) % 7
    options = {"n_bags": 3, "verbose": 2, "random_state": 0, "n_jobs": n_jobs}
    boosting = skforest.ObliqueBoostingRegressor(4, early_stopping=False, **options)
    for model, n, unit in (
        (boosting, 4, "round"),
        (skforest.RandomHingeForestRegressor(5, max_iter=70, **options), 2, "evaluation"),
    ):
        model.fit(X, y)
        shown = [tuple(line[key] for key in ("done", "total", "unit")) for line in lines(capsys)]
        n = sum(map(len, model.loss_curve_)) // 3 if unit == "evaluation" else n
        assert shown == [(str(k), str(3 * n), unit) for k in range(1, 3 * n + 1)]


def stopped_models():
    early = {"early_stopping": True, "n_iter_no_change": 3, "random_state": 0, "verbose": 1}
    joint = early | {"validation_fraction": 0.3, "n_iter_no_change": 1}
    boosting = {"linear_start": None, "linear_leaves": False, "learning_rate": 0.5}
    return {
        "round": skforest.ObliqueBoostingRegressor(500, n_bags=1, **boosting, **early),
        "rounds of bags": skforest.ObliqueBoostingRegressor(500, n_bags=3, **boosting, **early),
        "evaluation": made(skforest.RandomHingeForestRegressor, 5, n_bags=1, **early),
        "epoch": made(skforest.NonGreedyTreeRegressor, max_depth=2, **joint),
        "epoch of a tree": made(
            skforest.E2EDecisionForestRegressor, 1, max_depth=2, greedy_epochs=3, **joint
        ),
        "epoch of a refined tree": skforest.CO2ForestRegressor(
            1,
            objective="co2",
            holdout=0.0,
            bootstrap=False,
            max_features="sqrt",
            max_depth=2,
            refine=made(skforest.NonGreedyTreeRegressor, **joint),
            verbose=1,
            random_state=0,
        ),  # fmt: skip
    }


@pytest.mark.parametrize("name", stopped_models())
def test_progress_ends_where_training_is_stopped(name, capsys, without_tqdm):
    """At a total of its own; it says which round was the best, and the loss."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(120, 3)), rng.normal(size=120)  # nothing to learn
    model = stopped_models()[name].fit(X, y)
    out = capsys.readouterr().out.splitlines()
    scores = model.validation_scores_
    scores = scores if isinstance(scores, list) else [scores]  # of a single tree
    unit = name.split()[0].rstrip("s")
    first = 0 if unit == "round" else 1
    is_single = len(scores) == 1
    notes = [line.partition(": ")[2] for line in out if re.search(NOTE, line)]
    again = ["training again on all rows"] if name == "round" and model.n_iter_ != [0] else []
    best = first + int(np.argmax(scores[0]))
    end = f"stopped early, best {unit} {best}" if is_single else "stopped early"
    assert notes == [end, *again]
    shown = [match.groupdict() for match in (re.fullmatch(LINE, line) for line in out) if match]
    held_out = [line for line in shown if line["loss"]]
    n_done = sum(len(own) - (1 - first) for own in scores)
    assert (held_out[-1]["done"], held_out[-1]["total"]) == (str(n_done), str(n_done))
    least = np.mean([-max(own[1 - first :]) for own in scores])
    assert float(held_out[-1]["best"]) == pytest.approx(least, rel=1e-3)
    last = np.mean([-own[-1] for own in scores])
    assert float(held_out[-1]["loss"]) == pytest.approx(last, rel=1e-3)


def test_bars_end_at_totals_of_their_own(capsys):
    pytest.importorskip("tqdm")
    X, y = np.random.default_rng(0).normal(size=(2, 120, 3))
    models = stopped_models()
    model = models["round"].fit(X, y[:, 0] + X[:, 0])
    # tqdm covers the end of a longer line with spaces.
    shown = capsys.readouterr().err.split("\n")
    first, second = [text.split("\r")[-1].rstrip() for text in shown[:2]]
    n, best = len(model.validation_scores_[0]) - 1, np.argmax(model.validation_scores_[0])
    name = "ObliqueBoostingRegressor"
    assert re.match(rf"{name}, stopped early, best round {best}: 100%\|█+\| {n}/{n} \[", first)
    assert re.search(r"round.*, loss=[\d.]+, best=[\d.]+\]$", first)
    n = model.n_iter_[0]
    assert re.match(rf"{name}, training again on all rows: 100%\|█+\| {n}/{n} \[", second)
    model = models["rounds of bags"].fit(X, y[:, 0])
    last = capsys.readouterr().err.split("\r")[-1]
    n = sum(len(scores) - 1 for scores in model.validation_scores_)
    assert re.match(rf"{name}, stopped early: 100%\|█+\| {n}/{n} \[", last)


def test_nothing_is_reported_without_verbose(monkeypatch):
    """Training calls nothing after a round."""
    made = []
    control = threads.Control
    monkeypatch.setattr(threads, "Control", lambda *args: made.append(args) or control(*args))
    X, y = task(skforest.ObliqueBoostingRegressor())
    for n_bags in (1, 2):
        skforest.ObliqueBoostingRegressor(2, n_bags=n_bags, early_stopping=False).fit(X, y)
    assert made and all(args[0] is None for args in made if args)


def test_rate_and_time_left(capsys, without_tqdm, monkeypatch):
    """Ten trees, one after another at 2 seconds each."""
    clock = iter(np.arange(0, 100, 2.0).tolist())
    monkeypatch.setattr(threads.time, "perf_counter", lambda: next(clock))
    bar = progress.Progress(1, 10, "Name")
    for done in range(1, 11):
        bar.update(done)
    bar.close()
    shown = lines(capsys)
    assert [line["rate"] for line in shown] == ["0.5"] * 10
    assert [int(line["left"]) for line in shown] == [18, 16, 14, 12, 10, 8, 6, 4, 2, 0]


def test_time_left_of_steps(capsys, monkeypatch):
    """Four steps of 20 seconds."""
    clock = iter(np.arange(0, 200, 20.0).tolist())
    monkeypatch.setattr(progress.time, "perf_counter", lambda: next(clock))
    steps = progress.Steps(1, "Name", 4)
    for step in "abcd":
        steps.begin(step)
        steps.end()
    shown = capsys.readouterr().out.splitlines()
    assert [line.partition("20 s")[2] for line in shown] == [
        ", about 60 s left", ", about 40 s left", ", about 20 s left", ""
    ]  # fmt: skip


@pytest.mark.needs("min_weight_fraction_leaf")
def test_text_of_a_parallel_fit(estimator, capsys, without_tqdm):
    fit(estimator, verbose=1, n_estimators=20, n_jobs=2)
    done = [int(line["done"]) for line in lines(capsys)]
    assert done == sorted(set(done)) and done[-1] == 20


@pytest.mark.needs("min_weight_fraction_leaf")
def test_warm_start_counts_the_new_trees(estimator, capsys, without_tqdm):
    model = fit(estimator, warm_start=True, n_estimators=4)
    model.set_params(n_estimators=10, verbose=2).fit(*task(estimator))
    shown = lines(capsys)
    assert [(line["done"], line["total"]) for line in shown] == [
        (str(i), "6") for i in range(1, 7)
    ]


@pytest.mark.parametrize("verbose", [1, True])
@pytest.mark.needs("min_weight_fraction_leaf")
def test_a_bar_with_tqdm(estimator, capsys, verbose):
    pytest.importorskip("tqdm")
    fit(estimator, verbose=verbose, n_estimators=40)
    out, err = capsys.readouterr()
    assert out == ""
    last = err.split("\r")[-1]
    assert re.search(rf"{type(estimator).__name__}: 100%\|█+\| 40/40 \[\d\d:\d\d<\d\d:\d\d", last)
    assert re.search(r"\d+(\.\d+)? ?tree/s|s/tree", last)
    assert err.endswith("\n")


def test_the_bar_shows_rate_and_time_left_in_between(capsys):
    pytest.importorskip("tqdm")
    bar = progress.Progress(1, 10, "Name")
    bar.bar.mininterval = 0
    bar.bar.miniters = 1
    for done in range(1, 6):
        bar.update(done)
    err = capsys.readouterr().err
    rest = r"\[\d\d:\d\d<\d\d:\d\d, +[\d.]+(tree/s|s/tree)\]"
    assert re.search(rf"Name:  50%\|█+ +\| 5/10 {rest}", err)
    bar.close()


@pytest.mark.needs("min_weight_fraction_leaf")
def test_a_fit_that_fails_closes_the_bar(estimator, monkeypatch):
    pytest.importorskip("tqdm")
    closed = []
    close = progress.Progress.close

    def watched(self):
        close(self)
        closed.append(self.bar.disable)

    def fails(sampling, data, seed):
        raise RuntimeError("no tree")

    monkeypatch.setattr(progress.Progress, "close", watched)
    monkeypatch.setattr(Sampling, "sample", fails)
    given = {"objective": "co2", "holdout": 0.0, "max_features": None}  # nothing to choose first
    given = {name: value for name, value in given.items() if name in estimator.get_params()}
    estimator.set_params(verbose=1, bootstrap=False, **given)
    with pytest.raises(RuntimeError, match="no tree"):
        estimator.fit(*task(estimator))
    assert closed == [True]


def test_showing_changes_no_tree(estimator, without_tqdm):
    one, other = fit(estimator), fit(estimator, verbose=2)
    np.testing.assert_array_equal(one.forest_.threshold, other.forest_.threshold)
    np.testing.assert_array_equal(one.forest_.child, other.forest_.child)


# ------------------------------------------------------------- callbacks of scikit-learn 1.9


class Recorder:
    """A callback that stores its tasks, and raises an error at the end of one of them."""

    def __init__(self, fails_at=None, stops_at=None):
        self.fails_at, self.stops_at, self.ended, self.calls = fails_at, stops_at, [], []

    def setup(self, estimator, context):
        self.calls.append("setup")

    def teardown(self, estimator, context):
        self.calls.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.calls.append(context.task_name)

    def on_fit_task_end(self, estimator, context):
        self.ended.append((context.task_name, context.task_id))
        if self.ended[-1] == self.fails_at:
            raise KeyError("callback")
        return self.ended[-1] == self.stops_at


@pytest.fixture
def callback():
    return pytest.importorskip("sklearn.callback")


def with_callback(estimator, callback):
    return estimator.set_callbacks(callback).fit(*task(estimator))


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_callbacks_are_told_of_every_tree(callback, n_jobs):
    own = Recorder()
    forest = skforest.ManifoldForestClassifier(6, n_jobs=n_jobs, random_state=0)
    with_callback(forest, own)
    assert own.ended == [("tree", k) for k in range(6)] + [("fit", 0)]
    assert own.calls == ["setup", "fit"] + 6 * ["tree"] + ["teardown"]
    plain = clone(forest).set_callbacks().fit(*task(forest))
    assert pickle.dumps(plain.forest_) == pickle.dumps(forest.forest_)
    again = pickle.loads(pickle.dumps(forest)).set_params(warm_start=True, n_estimators=8)
    own = Recorder()
    with_callback(again, own)
    assert own.ended == [("tree", 0), ("tree", 1), ("fit", 0)]


def test_callbacks_are_told_of_the_rounds_of_one_bag(callback):
    own = Recorder()
    model = skforest.ObliqueBoostingClassifier(5, n_bags=1, early_stopping=False, random_state=0)
    with_callback(model, own)
    assert own.ended == [("epoch", k) for k in range(5)] + [("tree", 0), ("fit", 0)]


@pytest.mark.parametrize("fails_at", [("tree", 1), ("fit", 0)])
def test_an_error_of_a_callback_leaves_the_estimator_as_it_was(callback, fails_at):
    own = Recorder(fails_at)
    forest = skforest.ManifoldForestClassifier(4, n_jobs=2, random_state=0)
    forest.set_callbacks(own)
    before = dict(vars(forest))
    with pytest.raises(KeyError, match="callback"):
        forest.fit(*task(forest))
    assert vars(forest) == before
    assert own.calls[-1] == "teardown"


def test_a_callback_ends_training_after_a_tree(callback):
    forest = skforest.ManifoldForestClassifier(20, n_jobs=2, random_state=0)
    with_callback(forest, Recorder(stops_at=("tree", 2)))
    assert len(forest.forest_) == 3
    few = skforest.ManifoldForestClassifier(3, random_state=0).fit(*task(forest))
    X, _ = task(forest)
    np.testing.assert_array_equal(forest.predict_proba(X), few.predict_proba(X))


def test_a_callback_ends_boosting_after_a_round(callback):
    model = skforest.ObliqueBoostingRegressor(20, n_bags=1, early_stopping=False, random_state=0)
    with_callback(model, Recorder(stops_at=("epoch", 3)))
    assert len(model.forest_) == 4
    few = skforest.ObliqueBoostingRegressor(4, n_bags=1, early_stopping=False, random_state=0)
    X, y = task(model)
    np.testing.assert_array_equal(model.predict(X), few.fit(X, y).predict(X))


def test_a_warm_start_goes_on_where_a_callback_has_ended_boosting(callback):
    model = skforest.ObliqueBoostingRegressor(20, n_bags=1, early_stopping=False, random_state=0)
    with_callback(model.set_params(warm_start=True), Recorder(stops_at=("epoch", 3)))
    X, y = task(model)
    model.set_callbacks().fit(X, y)
    whole = clone(model).fit(X, y)
    assert len(model.forest_) == 20
    np.testing.assert_array_equal(model.predict(X), whole.predict(X))


def test_a_callback_is_no_time_limit(callback, recwarn):
    model = skforest.ObliqueBoostingRegressor(
        20, n_bags=1, early_stopping=False, time_limit=500, random_state=0
    )
    with_callback(model, Recorder(stops_at=("epoch", 3)))
    assert len(model.forest_) == 4 and not recwarn


def test_callbacks_are_not_saved(callback, tmp_path):
    forest = skforest.ManifoldForestClassifier(2, random_state=0)
    with_callback(forest, Recorder())
    skforest.save(forest, tmp_path / "forest")
    again = skforest.load(tmp_path / "forest")
    X, _ = task(forest)
    np.testing.assert_array_equal(again.predict_proba(X), forest.predict_proba(X))
    assert skforest.to_dict(again) == skforest.to_dict(forest)


def test_scores_are_monitored_by_number_of_trees(callback):
    monitor = callback.ScoringMonitor(scoring="r2")
    forest = skforest.CO2ForestRegressor(3, random_state=0)
    X, y = task(forest)
    with_callback(forest, monitor)
    scores = {row["task_id_path"]: row["r2"] for row in monitor.get_logs().data}
    for k in range(3):
        few = skforest.CO2ForestRegressor(k + 1, random_state=0).fit(X, y)
        assert scores[0, k] == pytest.approx(few.score(X, y))
    assert scores[0,] == scores[0, 2]


def test_a_progress_bar_counts_trees(callback, capsys):
    pytest.importorskip("rich")
    forest = skforest.ManifoldForestClassifier(6, n_jobs=2, random_state=0)
    with_callback(forest, callback.ProgressBar())
    assert "100%" in capsys.readouterr().out


@pytest.mark.usefixtures("without_tqdm")
def test_epochs_that_a_member_does_not_train_are_not_awaited(capsys):
    """It may end early without a report."""
    shown = progress.Progress(2, 3, "forest", ("bag", "round"))
    shown.report_epochs(3, 10, 0)
    assert shown.total == 30
    shown.end_member(1)
    assert shown.total == 23
    shown.report_epochs(4, 10, 1)
    assert shown.total == 23
    for number in (2, 3):
        shown.end_member(number)
    assert shown.total == 3 + 4
    assert "7 of 7 rounds" in capsys.readouterr().out


def test_the_member_with_the_fewest_parts_is_reported():
    limit = threads.TimeLimit(0.0, seconds=2.0)
    records = [{"ended": (5, 9, "round")}, {"ended": (2, 9, "round")}, {}]
    assert (
        limit.report(3, 3, "bag", records) == "time_limit=2: 3 of 3 bags, 2 of 9 rounds of a bag"
    )
    assert limit.report(1, 1, "bag", records[:1]) == "time_limit=2: 5 of 9 rounds"
    assert limit.report(3, 3, "bag", [{}] * 3) == ""
