"""The network: torch, background, targets, and calls from several threads."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_info, threadpool_limits

import whycluster as wc
from tests.optional import optional

if TYPE_CHECKING:
    import pandas as pd
    import torch
else:
    pd = optional("pandas")
    torch = optional("torch")

Array = NDArray[Any]


def test_explain_of_a_network_is_explain_of_its_model(wine: Array, kmeans: Any) -> None:
    net = wc.neuralize(kmeans)
    assert wc.neuralize(net) is net
    for exp in (net.explain(wine), wc.explain(net, wine)):
        assert (exp.relevance == wc.explain(kmeans, wine).relevance).all()


def test_beta_is_measured_on_the_background(wine: Array, kmeans: Any) -> None:
    whole = wc.explain(kmeans, wine)
    few = wc.explain(kmeans, wine[:3], background=wine)
    assert few.beta == whole.beta
    np.testing.assert_allclose(few.relevance, whole.relevance[:3], rtol=1e-12)
    assert wc.explain(kmeans, wine[:3]).beta != whole.beta
    assert wc.explain(kmeans, wine[:3], background=wine, beta=0.5).beta == 0.5


def test_a_background_frame_is_matched_with_the_frame_explained(wine: Array, kmeans: Any) -> None:
    frame = pd.DataFrame(wine)
    exp = wc.explain(kmeans, frame[:3], background=frame[frame.columns[::-1]])
    assert exp.beta == wc.explain(kmeans, wine).beta


def test_behind_steps_too_a_background_frame_is_matched_with_the_frame_explained(wine: Array) -> None:
    model = make_pipeline(StandardScaler(), PCA(3), KMeans(3, n_init=1, random_state=0)).fit(wine)
    frame = pd.DataFrame(wine, columns=[f"x{i}" for i in range(wine.shape[1])])
    exp = wc.explain(model, frame[:9], background=frame[frame.columns[::-1]])
    whole = wc.explain(model, wine)
    assert exp.beta == pytest.approx(whole.beta)
    np.testing.assert_allclose(exp.relevance, whole.relevance[:9], rtol=1e-9)


def test_beta_of_a_target_is_that_of_the_assigned_clusters(wine: Array, kmeans: Any) -> None:
    assert wc.explain(kmeans, wine, target=1).beta == wc.explain(kmeans, wine).beta


def test_a_query_without_a_rule_uses_the_default_rule_of_the_network(wine: Array, kmeans: Any) -> None:
    network = wc.neuralize(kmeans)
    assert network.explain(wine).rule == network.default_rule == "path"
    assert network.explain(wine, rule=None).rule == "path"
    network.default_rule = "joint"
    exp = network.explain(wine)
    assert exp.rule == "joint"
    assert (exp.relevance == wc.explain(kmeans, wine, rule="joint").relevance).all()
    assert network.explain(wine, rule="min-take-most").rule == "min-take-most"


def test_contrasts_need_no_beta(wine: Array, kmeans: Any) -> None:
    assert wc.explain(kmeans, wine, rule="contrast").beta is None
    assert wc.explain(kmeans, wine, against=1, beta=0.3).beta is None


def test_against_contrasts_two_clusters(wine: Array, kmeans: Any) -> None:
    exp = wc.explain(kmeans, wine, against=3)
    mu = kmeans.cluster_centers_
    assert (exp.competitor == 3).all()
    assert exp.rule == "contrast"
    expected = (wine - mu[3]) ** 2 - (wine - mu[exp.cluster]) ** 2
    np.testing.assert_allclose(exp.relevance, expected, atol=1e-12)
    own = exp.cluster == 3
    assert own.any()
    assert (exp.relevance[own] == 0).all()
    assert (exp.evidence[own] == 0).all()
    assert (exp.evidence[~own] > 0).all()


def test_target_and_against_together(wine: Array, kmeans: Any) -> None:
    exp = wc.explain(kmeans, wine, target=1, against=3)
    swapped = wc.explain(kmeans, wine, target=3, against=1)
    np.testing.assert_allclose(exp.relevance, -swapped.relevance, atol=1e-12)
    assert (exp.cluster == 1).all()


def test_a_target_and_a_competitor_for_each_row(wine: Array, kmeans: Any) -> None:
    exp = wc.explain(kmeans, wine)
    again = wc.explain(kmeans, wine, target=exp.cluster)
    np.testing.assert_allclose(again.relevance, exp.relevance, rtol=1e-12, atol=1e-12)
    contrast = wc.explain(kmeans, wine, against=exp.competitor)
    np.testing.assert_allclose(contrast.evidence, exp.evidence, rtol=1e-9)


def test_torch_layers_are_those_of_the_paper(kmeans: Any) -> None:
    module = wc.neuralize(kmeans).to_torch()
    assert isinstance(module, torch.nn.Sequential)
    detection, pooling = module
    assert isinstance(detection, torch.nn.Linear)
    assert detection.weight.shape == (5 * 4, 13)
    assert repr(pooling) == "MinPooling(n_competitors=4)"
    w_01 = 2 * (kmeans.cluster_centers_[0] - kmeans.cluster_centers_[1])
    np.testing.assert_allclose(detection.weight[0].detach().numpy(), w_01)


@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_torch_gives_the_evidence(wine: Array, kmeans: Any, shift: float) -> None:
    net = wc.neuralize(kmeans.cluster_centers_ + shift)
    X = torch.from_numpy(wine + shift)
    expected = net.evidence(wine + shift)
    np.testing.assert_allclose(net.to_torch()(X).detach().numpy(), expected, atol=1e-7)
    np.testing.assert_allclose(net.to_torch(2)(X).detach().numpy()[:, 0], expected[:, 2], atol=1e-7)


def test_torch_can_be_differentiated(wine: Array, kmeans: Any) -> None:
    X = torch.tensor(wine, requires_grad=True)
    net = wc.neuralize(kmeans)
    exp = wc.explain(kmeans, wine)
    net.to_torch()(X).max(dim=1).values.sum().backward()
    mu = kmeans.cluster_centers_
    assert X.grad is not None
    np.testing.assert_allclose(X.grad.numpy(), 2 * (mu[exp.cluster] - mu[exp.competitor]), atol=1e-12)


@pytest.mark.usefixtures("two_threads")
def test_many_rows_on_many_threads_are_as_few_on_one() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(150_000, 30))
    model = KMeans(9, n_init=1, max_iter=5, random_state=0).fit(X[:2000])
    many = wc.explain(model, X)
    with threadpool_limits(1):
        one = wc.explain(model, X)
    assert (many.relevance == one.relevance).all()
    assert many.beta == one.beta


CONCURRENT = """
import numpy as np, whycluster as wc
from concurrent.futures import ThreadPoolExecutor
from threadpoolctl import threadpool_info, threadpool_limits

threadpool_limits(8)  # more threads than cores: blocks must not depend on them
X = np.random.default_rng(3).normal(size=(100_000, 30))
net = wc.neuralize(X[:6])
before = [library["num_threads"] for library in threadpool_info()]
with ThreadPoolExecutor(3) as pool:
    results = list(pool.map(lambda _: net.explain(X), range(30)))
expected = net.explain(X)
for exp in results:
    np.testing.assert_allclose(exp.relevance, expected.relevance, rtol=1e-12, atol=1e-12)
assert [library["num_threads"] for library in threadpool_info()] == before
print("done")
"""


@pytest.mark.slow
def test_threads_of_the_user_do_not_disturb_each_other() -> None:
    """In a process of its own, where no thread has taken control of BLAS before."""
    result = subprocess.run([sys.executable, "-c", CONCURRENT], capture_output=True, text=True, check=False)
    assert result.stdout == "done\n", result.stderr


@pytest.mark.slow
def test_an_interruption_stops_all_threads() -> None:
    """Ctrl-C in a long explanation comes through within a block, not at the end."""
    code = (
        "import numpy as np, whycluster as wc, signal, threading, time, os\n"
        "X = np.broadcast_to(np.zeros((1, 200)), (10_000_000, 200))\n"
        "net = wc.neuralize(np.eye(200)[:40])\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell may have it ignored
        "threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\n"
        "start = time.perf_counter()\n"
        "try:\n"
        "    net.assign(X)\n"
        "except KeyboardInterrupt:\n"
        "    print(time.perf_counter() - start)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert 0.9 < float(result.stdout) < 3.0, result.stderr


@pytest.mark.usefixtures("two_threads")
def test_an_error_in_a_thread_reaches_the_caller_and_leaves_blas_as_it_was() -> None:
    X = np.random.default_rng(3).normal(size=(100_000, 30))
    X[77_777, 5] = np.nan
    before = [library["num_threads"] for library in threadpool_info()]
    with pytest.raises(wc.InvalidInputError, match="row 77777, feature 'x5' holds a missing value"):
        wc.explain(np.eye(30)[:4], X)
    assert [library["num_threads"] for library in threadpool_info()] == before


def test_repr_says_what_it_is(kmeans: Any) -> None:
    assert repr(wc.neuralize(kmeans)) == "<TableNetwork of 5 clusters, 13 features (SquaredEnergy)>"
    assert repr(wc.neuralize([[0.0], [1.0]])) == "<TableNetwork of 2 clusters, 1 feature (SquaredEnergy)>"
