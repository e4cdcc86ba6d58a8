"""Hidden Markov models: the state of a time step follows from its values and from the steps around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import whycluster as wc
from tests.optional import optional
from tests.reference import sequence as slow
from whycluster.evaluation import flipping_auc

if TYPE_CHECKING:
    import hmmlearn.hmm as hmm
    import pandas as pd
else:
    hmm = optional("hmmlearn.hmm")
    pd = optional("pandas")

Array = NDArray[Any]
KINDS = ["diag", "spherical", "tied", "full"]
CENTERS = np.array([[0.0, 0.0, 0.0], [2.0, 0.0, 1.0], [0.0, 2.5, -1.0]])


def sequence(n: int = 300, seed: int = 0) -> Array:
    """Return time steps of three states, most of which last for a while."""
    rng = np.random.default_rng(seed)
    states = np.zeros(n, dtype=int)
    for t in range(1, n):
        states[t] = states[t - 1] if rng.random() < 0.9 else rng.integers(3)
    return np.asarray(CENTERS[states] + 1.2 * rng.normal(size=(n, 3)))


X = sequence()


def fitted(kind: str = "diag", algorithm: str = "viterbi", n_states: int = 3) -> Any:
    model = hmm.GaussianHMM(n_states, covariance_type=kind, algorithm=algorithm, n_iter=20, random_state=0)
    return model.fit(X)


@pytest.mark.parametrize("algorithm", ["viterbi", "map"])
@pytest.mark.parametrize("kind", KINDS)
def test_states_are_those_that_the_model_predicts(kind: str, algorithm: str) -> None:
    model = fitted(kind, algorithm)
    exp = wc.explain(model, X)
    np.testing.assert_array_equal(exp.cluster, model.predict(X))
    new = sequence(200, seed=1)
    np.testing.assert_array_equal(wc.neuralize(model).assign(new), model.predict(new))
    assert (exp.evidence >= 0.0).all()
    np.testing.assert_allclose(exp.relevance.sum(axis=1) + exp.residual, exp.evidence, atol=1e-12)
    # The states of some steps are not those that their own values make most probable.
    alone = wc.TableNetwork(wc.neuralize(model).emission).assign(X)  # type: ignore[attr-defined]
    assert (alone != exp.cluster).mean() > 0.02


@pytest.mark.parametrize("algorithm", ["viterbi", "map"])
@pytest.mark.parametrize("kind", ["diag", "full"])
def test_energies_are_those_of_all_paths(kind: str, algorithm: str) -> None:
    model, few = fitted(kind, algorithm), X[40:46]
    evidence = wc.neuralize(model).evidence(few)
    covariances = np.asarray(model.covars_)
    energies = slow.state_energies(
        few, model.startprob_, model.transmat_, model.means_, covariances, algorithm == "map"
    )
    for k in range(3):
        rival = np.delete(energies, k, axis=1).min(axis=1)
        possible = energies[:, k] < np.inf
        np.testing.assert_allclose(
            evidence[possible, k], (rival - energies[:, k])[possible], rtol=1e-9, atol=1e-9
        )


def test_the_split_is_that_of_the_step_itself() -> None:
    """The rest of the evidence comes from the other time steps, and is named."""
    model = fitted()
    exp = wc.explain(model, X, rule="contrast")
    covariances = np.asarray(model.covars_)
    for t in range(0, len(X), 37):
        c, k = int(exp.cluster[t]), int(exp.competitor[t])
        terms = [
            np.array(
                [
                    -slow.log_density(X[t, [i]], model.means_[state, [i]], covariances[state][[[i]], [i]])
                    for i in range(3)
                ]
            )
            for state in (k, c)
        ]
        np.testing.assert_allclose(exp.relevance[t], terms[0] - terms[1], rtol=1e-9, atol=1e-12)
    row = int(np.abs(exp.residual).argmax())
    assert "other time steps" in exp.describe(row)
    assert "no single feature" not in exp.describe(row)
    assert "other time steps, and no single feature" in wc.explain(fitted("full"), X).describe(row)


def test_probabilities_of_states() -> None:
    model = fitted(algorithm="map")
    exp = wc.explain(model, X, threshold=0.9)
    p = model.predict_proba(X)[np.arange(len(X)), exp.cluster]
    np.testing.assert_array_equal(exp.evidence > 0.0, p > 0.9)
    np.testing.assert_allclose(1 / (1 + np.exp(-exp.evidence - np.log(9))), p, atol=1e-9)
    with pytest.raises(wc.InvalidInputError, match="threshold applies only to models that give prob"):
        wc.explain(fitted(), X, threshold=0.9)


def test_states_that_the_transitions_rule_out() -> None:
    """A model from left to right: the first time step can only be in the first state."""
    model = fitted()
    model.startprob_ = np.array([1.0, 0.0, 0.0])
    model.transmat_ = np.array([[0.9, 0.1, 0.0], [0.0, 0.9, 0.1], [0.0, 0.0, 1.0]])
    for model.algorithm in ("viterbi", "map"):
        exp = wc.explain(model, X)
        np.testing.assert_array_equal(exp.cluster, model.predict(X))
        assert np.isfinite(exp.relevance).all()
        np.testing.assert_allclose(exp.relevance.sum(axis=1) + exp.residual, exp.evidence, atol=1e-6)
        assert exp.evidence[0] > 1e8


@pytest.mark.parametrize("kind", ["diag", "full"])
def test_what_would_change_the_state_of_a_step(kind: str) -> None:
    """If only this step changes, the model predicts the new state for it; no smaller change is enough."""
    model = fitted(kind)
    exp = wc.explain(model, X)
    for t in np.argsort(exp.evidence)[[0, 20, 100]].tolist():
        found = exp.counterfactual(t)
        assert found.optimum in ("global", "certified")
        changed = X.copy()
        changed[t] = found.after
        assert model.predict(changed)[t] == found.to != exp.cluster[t]
        changed[t] = X[t] + 0.99 * (found.after.astype(float) - X[t])
        assert model.predict(changed)[t] == exp.cluster[t]


def test_some_steps_of_an_explanation_keep_their_context() -> None:
    model = fitted()
    frame = pd.DataFrame(X, columns=list("abc"), index=[f"day {t}" for t in range(len(X))])
    exp = wc.explain(model, frame)
    some = exp[exp.cluster == 1]
    np.testing.assert_array_equal(some.evidence, exp.evidence[exp.cluster == 1])
    assert exp.describe(label="day 7") == exp.describe(7)
    assert exp.describe(7).startswith("Row day 7 (position 7) is in cluster ")
    assert np.isfinite(wc.neuralize(model).gradient(X)).all()
    assert exp.feature_names == list("abc")
    assert "cluster" in str(exp.summary())
    with pytest.raises(wc.InvalidInputError, match="must be finite; row 3, feature 'b' holds a missing"):
        wc.explain(model, frame.assign(b=frame.b.where(np.arange(len(X)) != 3)))


def refused(call: Any) -> str:
    with pytest.raises(wc.UnsupportedModelError) as error:
        call()
    return str(error.value)


def test_what_needs_rows_that_stand_alone_is_refused() -> None:
    model = fitted()
    must = (
        "must assign each row alone; the state of a time step depends on those around it. Use wc.explain on "
        "each sequence as a whole."
    )
    exp = wc.explain(model, X)
    assert refused(lambda: flipping_auc(model, X, exp)) == f"flipping_auc: the model {must}"
    assert refused(lambda: wc.Segmentation.of(model, X)) == f"Segmentation: the model {must}"
    assert refused(lambda: wc.explain_dataset(model, "nowhere", "there")) == (
        f"explain_dataset: the model {must}"
    )
    pipeline = make_pipeline(StandardScaler(), hmm.GaussianHMM(2, random_state=0)).fit(X)
    assert refused(lambda: wc.explain(pipeline, X)) == (
        "neuralize: GaussianHMM must not follow other steps of a pipeline, since the state of a row also "
        "depends on the rows before and after it. Explain the model in terms of the output of the steps "
        "before it: "
        "wc.explain(pipeline[-1], pipeline[:-1].transform(X))."
    )


def test_other_models_of_sequences_are_refused() -> None:
    model = hmm.GMMHMM(2, random_state=0).fit(X)
    assert refused(lambda: wc.neuralize(model)) == (
        "neuralize: of hmmlearn's models, only GaussianHMM is supported; got a GMMHMM. Any clustering can be "
        "explained from its labels, through a surrogate that reports how well it matches them: "
        "wc.explain(labels, X)."
    )
    with pytest.raises(wc.NotFittedError, match="the GaussianHMM must be fitted first"):
        wc.neuralize(hmm.GaussianHMM(2))
    singular = fitted("full")
    singular._covars_ = np.zeros((3, 3, 3))
    with pytest.raises(wc.InvalidInputError, match="states whose covariance is singular"):
        wc.neuralize(singular)
