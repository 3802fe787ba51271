"""Parameters of constructors: how many there are, their descriptions, and procedures."""

import inspect
import re

import numpy as np
import pytest
from conftest import ALL, small
from makers import assert_same_trees, changed, made, task
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.model_selection import GridSearchCV

import skforest
from skforest.estimators.validation import Procedure

WITH_PROCEDURE = [cls for cls in ALL if getattr(cls, "_default_procedure", None) is not None]
PROCEDURES = [
    thing
    for thing in map(skforest.__dict__.get, skforest.__all__)
    if isinstance(thing, type) and issubclass(thing, Procedure)
]
each_procedure = pytest.mark.parametrize("procedure", PROCEDURES, ids=lambda cls: cls.__name__)
with_procedure = pytest.mark.parametrize("cls", WITH_PROCEDURE, ids=lambda cls: cls.__name__)

# A parameter of each procedure, with two values that give other trees than the default.
SEARCHED = {
    skforest.CO2Procedure: {"learning_rate": [0.003, 0.3]},
    skforest.E2EProcedure: {"steepness": [0.3, 5.0]},
    skforest.HingeProcedure: {"importance_power": [0.0, 2.0]},
    skforest.ManifoldProcedure: {"n_nonzeros": [1.0, 4.0]},
    skforest.NonGreedyProcedure: {"row_norm": [1.0, 3.0]},
}
# A value that none of them takes.
WRONG = {
    skforest.CO2Procedure: {"row_norm": -1.0},
    skforest.E2EProcedure: {"batch_size": 0},
    skforest.HingeProcedure: {"head": "sum"},
    skforest.ManifoldProcedure: {"max_bins": 1},
    skforest.NonGreedyProcedure: {"momentum": 1.0},
}

# ------------------------------------------------------------------------- number and description

MOST, MOST_IN_ALL = 24, 340
NOT_COUNTED = {"prior"}  # it describes the rows to predict, and no fit depends on it
NO_BLENDS = [cls for cls in ALL if "Blended" not in cls.__name__]  # they have no groups


def names_of(cls):
    """Parameters in the order of the signature."""
    return list(inspect.signature(cls).parameters)


def described(cls):
    """Section of the parameters in a docstring: the text below each ``name : type`` line."""
    section = inspect.getdoc(cls).split("\nParameters\n----------\n")[1]
    section = re.split(r"\n[A-Z][A-Za-z ]+\n-+\n", section)[0]
    found = re.split(r"^(\w+) : (.*), default=(.*)$", section, flags=re.MULTILINE)[1:]
    return {found[i]: tuple(found[i + 1 : i + 4]) for i in range(0, len(found), 4)}


def test_the_number_of_parameters_is_limited():
    assert len(ALL) >= 12
    for cls in ALL:
        assert len(set(names_of(cls)) - NOT_COUNTED) <= MOST, cls.__name__
    assert sum(len(names_of(cls)) for cls in ALL) <= MOST_IN_ALL


@pytest.mark.parametrize("cls", [*ALL, *PROCEDURES], ids=lambda cls: cls.__name__)
def test_every_parameter_is_described_in_the_order_of_the_signature(cls):
    found = described(cls)
    assert list(found) == names_of(cls)
    for name, (kind, default, text) in found.items():
        assert kind and len(text.split()) > 2, name
        value = inspect.signature(cls).parameters[name].default
        assert default == repr(value).replace("'", '"'), name


@pytest.mark.parametrize("cls", NO_BLENDS, ids=lambda cls: cls.__name__)
def test_usual_parameters_are_the_first_and_those_of_running_the_last(cls):
    section = inspect.getdoc(cls).split("\nParameters\n")[1].split("\nAttributes\n")[0]
    groups = re.findall(r"^\*\*(.*)\*\*$", section, flags=re.MULTILINE)
    assert groups == ["Usually enough", "Of the method", "Running"]
    usual, *_, running = re.split(r"^\*\*.*\*\*$", section, flags=re.MULTILINE)[1:]
    usual, running = (
        re.findall(r"^(\w+) : ", text, flags=re.MULTILINE) for text in (usual, running)
    )
    names = names_of(cls)
    assert 3 <= len(usual) <= 8 and names[: len(usual)] == usual
    assert names[-len(running) :] == running
    assert {"random_state", "verbose"} < set(running)


def test_estimators_are_shown_in_notebooks():
    """scikit-learn then reads every property, also where there is no procedure."""
    for cls in ALL:
        model = cls()
        assert "fit" in dir(model)
        assert cls.__name__ in model._repr_html_()


# -------------------------------------------------------------------------------------- procedures


def test_every_procedure_belongs_to_a_classifier_and_a_regressor():
    owners = {procedure: [] for procedure in PROCEDURES}
    for cls in WITH_PROCEDURE:
        owners[cls._default_procedure].append(is_classifier(cls()))
        assert cls().procedure is None
    assert all(sorted(own) == [False, True] for own in owners.values())
    assert SEARCHED.keys() == WRONG.keys() == owners.keys()


@with_procedure
def test_no_parameter_is_in_an_estimator_and_in_its_procedure(cls):
    """Else an error could mean either."""
    assert not set(names_of(cls)) & set(names_of(cls._default_procedure))


@pytest.mark.thin(2)
@with_procedure
def test_without_a_procedure_it_has_its_defaults(cls):
    model = small(cls)
    X, y = task(model)
    default = clone(model).set_params(procedure=cls._default_procedure())
    assert_same_trees(default.fit(X, y), model.fit(X, y))


@each_procedure
def test_procedures_are_objects_of_scikit_learn(procedure):
    ((name, values),) = SEARCHED[procedure].items()
    one = procedure(**{name: values[0]})
    copy = clone(one)
    assert copy is not one and copy.get_params() == one.get_params()
    assert one.set_params(**{name: values[1]}) is one
    assert getattr(one, name) == values[1] != getattr(copy, name) == values[0]
    assert repr(copy) == f"{procedure.__name__}({name}={values[0]})"
    with pytest.raises(ValueError, match=f"Invalid parameter 'colour' for.*{procedure.__name__}"):
        one.set_params(colour="green")
    with pytest.raises(TypeError, match="colour"):
        procedure(colour="green")
    with pytest.raises(TypeError, match="positional argument"):
        procedure(values[0])


@pytest.mark.thin(2)
@with_procedure
def test_an_estimator_copies_and_sets_the_parameters_of_its_procedure(cls):
    procedure = cls._default_procedure
    ((name, values),) = SEARCHED[procedure].items()
    given = procedure(**{name: values[0]})
    model = small(cls).set_params(procedure=given)
    deep = model.get_params()
    assert deep["procedure"] is given and deep[f"procedure__{name}"] == values[0]
    assert {f"procedure__{own}" for own in names_of(procedure)} <= deep.keys()
    assert "procedure" in model.get_params(deep=False)
    copy = clone(model)
    assert copy.procedure is not given and copy.procedure.get_params() == given.get_params()
    copy.set_params(**{f"procedure__{name}": values[1]})
    assert (getattr(copy.procedure, name), getattr(given, name)) == (values[1], values[0])
    X, y = task(model)
    before = given.get_params()
    model.fit(X, y)
    assert model.procedure is given and given.get_params() == before
    trees = [one.forest_.threshold.tobytes() for one in (model, copy.fit(X, y))]
    assert trees[0] != trees[1] and small(cls).fit(X, y).forest_.threshold.tobytes() not in trees


@pytest.mark.thin(2)
@with_procedure
def test_a_grid_search_over_parameters_of_the_procedure(cls):
    procedure = cls._default_procedure
    ((name, values),) = SEARCHED[procedure].items()
    model = small(cls).set_params(procedure=procedure())
    X, y = task(model)
    search = GridSearchCV(model, {f"procedure__{name}": values}, cv=2, error_score="raise")
    search.fit(X, y)
    best = search.best_params_[f"procedure__{name}"]
    scores = search.cv_results_["mean_test_score"]
    assert getattr(search.best_estimator_.procedure, name) == best == values[scores.argmax()]
    assert scores[0] != scores[1]
    assert getattr(model.procedure, name) == getattr(procedure(), name)


def no_training(*args, **kwargs):
    raise AssertionError("time is spent")


@with_procedure
def test_a_procedure_is_checked_before_time_is_spent(cls, monkeypatch):
    """Its parameters are, and those of a refinement: before X is read, or a trial is trained."""
    ((name, value),) = WRONG[cls._default_procedure].items()
    model = made(cls, **{name: value})
    words = rf"'{name}' parameter of {cls._default_procedure.__name__} must be .* Got {value!r}"
    with pytest.raises(ValueError, match=words):
        model.fit(None, None)
    assert vars(model).keys() == vars(cls()).keys()
    if hasattr(model, "partial_fit"):
        with pytest.raises(ValueError, match=words):
            model.partial_fit(None, None)
    if "refine" in model.get_params():
        tree = made(skforest.NonGreedyTreeClassifier, row_norm=-1.0)
        monkeypatch.setattr("skforest.estimators.co2.best_setting", no_training)
        X, y = task(model)
        with pytest.raises(ValueError, match="'row_norm' parameter of NonGreedyProcedure must be"):
            cls(refine=tree).fit(X, y)


@with_procedure
def test_another_type_of_procedure_is_refused(cls):
    """By a message that names the parameter, the type, and what was given."""
    name = cls._default_procedure.__name__
    other = next(one for one in PROCEDURES if one is not cls._default_procedure)
    wrong = [other(), other.as_printed(), cls._default_procedure, "as_printed", {}, True, cls()]
    for value in wrong:
        words = rf"'procedure' parameter of {cls.__name__} must be .*{name}' or None\. Got "
        with pytest.raises(ValueError, match=words) as error:
            cls(procedure=value).fit(None, None)
        assert type(value).__name__ in str(error.value) or repr(value) in str(error.value)


@each_procedure
def test_the_printed_procedure_with_changes(procedure):
    printed, defaults = procedure.as_printed(), procedure().get_params()
    assert type(printed) is procedure and isinstance(printed, BaseEstimator)
    assert printed.get_params() == defaults | procedure._printed
    # It says what is not a default, and only values that are possible.
    assert procedure._printed
    assert all(defaults[name] != value for name, value in procedure._printed.items())
    printed._validate_params()
    # A change replaces what is printed, or adds to it; the next object has none of it.
    name, value = next(iter(procedure._printed.items()))
    ((added, values),) = SEARCHED[procedure].items()
    changes = {name: defaults[name], added: values[0]}
    expected = printed.get_params() | changes
    assert procedure.as_printed(**changes).get_params() == expected
    assert procedure.as_printed().get_params() == printed.get_params()
    with pytest.raises(TypeError, match="colour"):
        procedure.as_printed(colour="green")


@pytest.mark.thin(2)
@with_procedure
def test_the_printed_procedure_trains_other_trees(cls):
    model = small(cls)
    if "l1" in model.get_params():
        model.set_params(learning_rate=0.03)  # rows are not scaled
    X, y = task(model)
    printed = clone(model).set_params(procedure=cls._default_procedure.as_printed()).fit(X, y)
    assert np.isfinite(printed.score(X, y))
    default = model.fit(X, y)
    assert printed.forest_.threshold.tobytes() != default.forest_.threshold.tobytes()


@pytest.mark.parametrize(
    "cls",
    [cls for cls in WITH_PROCEDURE if "warm_start" in names_of(cls)],
    ids=lambda c: c.__name__,
)
def test_a_warm_start_takes_the_new_procedure(cls):
    """As other parameters of training: it applies to the trees that are added."""
    model = small(cls)
    number = "n_bags" if "n_bags" in names_of(cls) else "n_estimators"
    ((name, values),) = SEARCHED[cls._default_procedure].items()
    X, y = task(model)
    model.set_params(warm_start=True, **{number: 2}).fit(X, y)
    before = model.forest_
    changed(model, **{name: values[0], number: 3})
    if name == "steepness":  # of a forest, for soft routing
        with pytest.raises(ValueError, match="and the procedure now make it"):
            model.fit(X, y)
        return
    found = model.fit(X, y).forest_
    np.testing.assert_array_equal(found[: len(before)].threshold, before.threshold)
    assert len(found) > len(before)


@pytest.mark.parametrize("cls", [cls for cls in ALL if "procedure" in names_of(cls)])
def test_a_search_needs_no_procedure_to_begin_with(cls):
    name, default = next(iter(cls._default_procedure().get_params().items()))
    model = cls().set_params(**{f"procedure__{name}": default})
    assert model.procedure == cls._default_procedure()
    other = cls(procedure=cls._default_procedure.as_printed())
    other.set_params(**{f"procedure__{name}": default})
    assert other.procedure == cls._default_procedure.as_printed(**{name: default})
    model = cls()
    with pytest.raises(ValueError, match="Invalid parameter 'depth'"):
        model.set_params(**{f"procedure__{name}": default, "procedure__depth": 3})
    assert model.procedure is None
    with pytest.raises(AttributeError):  # a parameter of a number
        model.set_params(**{f"procedure__{name}": default, "random_state__seed": 3})
    assert model.procedure is None
