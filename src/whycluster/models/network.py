"""The neuralized clustering model: energies below, min-pooling on top (Prop. 1)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from copy import copy
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whycluster.core import attribution
from whycluster.core.arrays import Codes
from whycluster.core.attribution import Background, Query
from whycluster.core.energies import Energy
from whycluster.core.errors import InvalidInputError, MissingDependencyError, UnsupportedModelError
from whycluster.core.rules import CONTRAST, DEFAULT_RULE, RULES, SOFT
from whycluster.data.arrays import is_dask, is_real
from whycluster.data.labels import Labels
from whycluster.data.mixed_table import MixedTable
from whycluster.data.opening import column_names, open_table
from whycluster.data.table import Table
from whycluster.explanations.explanation import Answer, Explanation, answer
from whycluster.explanations.fidelity import Fidelity

if TYPE_CHECKING:
    import torch


class Network:
    """A clustering model as a neural network: it assigns like the model, and can be explained.

    Made by `whycluster.neuralize`.

    Parameters
    ----------
    energy : the energies s_k and their splits
    labels : (K,) the model's names for its clusters; by default 0..K-1
    feature_names : (d,) the columns the model was fitted on, where it knows them
    categories : for each feature its categories in the order of their codes, or None where it is a number
    fidelity : for a surrogate, how well it matches the clustering that it stands for
    verify : called with all data that comes, and the labels; raises where the model would not assign it
        like this network
    opener : makes a table of the user's rows, as `open_table` does
    answer : answers a question asked of a table, as `explanation.answer` does
    text_columns : the positions of features that steps before the model know as text
    """

    def __init__(
        self,
        energy: Energy,
        *,
        labels: ArrayLike | None = None,
        feature_names: Sequence[Hashable] | None = None,
        categories: Sequence[Sequence[Any] | None] | None = None,
        fidelity: Fidelity | None = None,
        verify: Callable[[Table, Labels], None] | None = None,
        opener: Callable[..., Table] = open_table,
        answer: Callable[[Energy, Table, Query, Background | None], Answer] = answer,
        text_columns: frozenset[int] = frozenset(),
    ) -> None:
        if energy.n_clusters < 2:
            raise InvalidInputError(
                "neuralize: the model must have at least 2 clusters, since a cluster is explained "
                f"against its competitors; got {energy.n_clusters}."
            )
        self.energy = energy
        self.feature_names = None if feature_names is None else list(feature_names)
        if self.feature_names is not None and len(self.feature_names) != energy.n_features:
            raise InvalidInputError(
                f"neuralize: the model must have a name for each of its {energy.n_features} features; "
                f"it has {len(self.feature_names)}."
            )
        self._labels = Labels(np.arange(energy.n_clusters) if labels is None else labels)
        if len(self._labels) != energy.n_clusters:
            raise InvalidInputError(
                f"neuralize: labels must be {energy.n_clusters} names, one per cluster; "
                f"got {len(self._labels)}."
            )
        self.fidelity = fidelity
        self.categories = categories
        self._verify = verify
        self._opener = opener
        self._answer = answer
        self._text_columns = text_columns

    @property
    def labels(self) -> NDArray[Any]:
        """(K,) the clusters' labels, in the order of the columns of `evidence`."""
        return self._labels.names

    @property
    def by_names(self) -> Network:
        """The same network, for tables whose columns have names of text: other names of its own are none."""
        if all(isinstance(name, str) for name in self.feature_names or []):
            return self
        nameless = copy(self)
        nameless.feature_names = None
        return nameless

    @property
    def is_deep(self) -> bool:
        """Whether an encoder makes the features out of what the user gives."""
        return False

    @property
    def is_checked(self) -> bool:
        """Whether all rows that come are compared with the model's own prediction."""
        return self._verify is not None

    @property
    def takes_any_kind(self) -> bool:
        """Whether columns may hold what is no number: the model, or steps before it, know what to do."""
        return self.categories is not None or self._opener is not open_table

    @property
    def text_columns(self) -> frozenset[int]:
        """The positions of features that the model, or steps before it, know as text."""
        known = enumerate(self.categories or [])
        own = {i for i, names in known if names and all(isinstance(name, str) for name in names)}
        return self._text_columns | own

    @property
    def n_clusters(self) -> int:
        """K, the number of clusters."""
        return self.energy.n_clusters

    @property
    def n_features(self) -> int:
        """d, the number of features."""
        return self.energy.n_features

    def __repr__(self) -> str:
        kind = type(self.energy).__name__
        return f"<Network of {self.n_clusters} clusters, {self.n_features} features ({kind})>"

    def assign(self, X: Any) -> NDArray[Any]:
        """The cluster of each row, (n,), as the model itself predicts it.

        On an exact tie the cluster that comes first in `labels` wins. Of a Dask array or DataFrame, a Dask
        array, in the same chunks.
        """
        if is_dask(X):
            lazily: NDArray[Any] = import_module("whycluster.engines.dask").assign_lazily(self, X)
            return lazily
        return self._labels.decode(attribution.assign(self.energy, self.open(X, "assign")))

    def evidence(self, X: Any) -> NDArray[Any]:
        """The evidence f_c for every cluster, (n, K): positive at the assigned one and there only."""
        return attribution.evidence_of_every_cluster(self.energy, self.open(X, "evidence"))

    def gradient(self, X: Any, target: Any = None) -> NDArray[Any]:
        """The gradient of the evidence f_c of each row, (n, d): where to move a row for more of it.

        It is a formula for every model, not a difference of two evidences. f_c is the least over the
        competitors, so the gradient is that against the strongest, the first on a tie. A category has no
        slope: 0.

        Parameters
        ----------
        X : (n, d) the rows, as in `explain`
        target : the cluster c, or one per row; by default the cluster of each row. Of a row that is not
            in it, the strongest competitor is the cluster that won (in a tree, the one beyond the pair that
            speaks most against the target).
        """
        table = self.open(X, "gradient")
        if table.goes_through_steps:
            raise UnsupportedModelError(
                "gradient: the steps of a pipeline need not have slopes. Take that of the model at its end, "
                "in the features that the steps make: "
                "wc.neuralize(pipeline[-1]).gradient(pipeline[:-1].transform(X))."
            )
        cluster = self._codes(target, table.n_rows, "target", "gradient")
        return attribution.gradient(self.energy, table, cluster)

    def explain(
        self,
        X: Any,
        *,
        target: Any = None,
        against: Any = None,
        beta: float | str = "auto",
        rule: str = DEFAULT_RULE,
        threshold: float | None = None,
        background: Any = None,
        feature_names: Sequence[Hashable] | None = None,
        at: str | None = None,
        units: str | None = None,
    ) -> Explanation:
        """Explain each row; `whycluster.explain` says what the parameters mean."""
        if at is not None or units is not None:
            raise InvalidInputError(
                "explain: at and units are for deep clusterings, which have layers; this model has none. "
                "Leave them out."
            )
        self.check_question(against, beta, rule, threshold, "explain")
        table = self.open(X, "explain", feature_names=feature_names)
        query = self.ask(table.n_rows, target, against, beta, rule, threshold)
        population = None if background is None else self._open_background(background, table)
        kind, found, parts = self.answer(table, query, population)
        if (found.cluster == found.competitor).all():
            raise InvalidInputError(
                "explain: against must be another cluster than the one explained; they are the same in "
                f"every row of {table.name}."
            )
        if self.fidelity is not None:
            self.fidelity.warn_if_low()
        explained: Any = kind.of(found, query, self.energy, table, self.labels, self.fidelity, **parts)
        return explained  # type: ignore[no-any-return]  # of documents, a TextExplanation

    def check_question(self, against: Any, beta: Any, rule: Any, threshold: Any, where: str) -> None:
        """Raise, before any row is looked at, for what could be asked of none."""
        stiffness = _check_beta(beta, where)
        check_rule(rule, where)
        if threshold is not None:
            self._check_threshold(threshold, rule, stiffness, against, where)

    def ask(
        self, n_rows: int, target: Any, against: Any, beta: Any, rule: str, threshold: float | None
    ) -> Query:
        """What `explain` asks of so many rows."""
        cluster = self._codes(target, n_rows, "target")
        competitor = self._codes(against, n_rows, "against")
        if threshold is not None:
            return Query(cluster, None, SOFT, 1.0, float(threshold))
        if competitor is None and rule != CONTRAST:
            return Query(cluster, None, rule, _check_beta(beta, "explain"))
        return Query(cluster, competitor)

    def answer(self, table: Table, query: Query, background: Background | None) -> Answer:
        """Answer a question that is asked of the rows of a table; what it measures, on the background."""
        return self._answer(self.energy, table, query, background)

    def to_torch(self, cluster: Any = None) -> torch.nn.Module:
        """The network as a `torch.nn.Module` in float64; it takes rows, (n, d), as a tensor of float64.

        The output equals `evidence`: (n, K), or (n, 1) for one ``cluster``; autograd gives `gradient`.

        - k-means and its like, soft heads: a linear layer with a unit for each ordered pair of clusters,
          K (K - 1) of them, then a minimum (Props. 1 and 6). Cosines have rows of unit length before it.
        - Kernel k-means: a unit for each pair of support vectors, a soft maximum and a soft minimum, then
          the minimum (Prop. 5).
        - Trees: a linear unit for each pair of nodes, then the minimum over the way to each cluster.
        - All others, which are not linear: the energies, their differences, the minimum. Categories come in
          as codes, from 0 in the order of the model's encoding; any other number matches no cluster.
        """
        if self._opener is not open_table:
            raise UnsupportedModelError(
                "to_torch: the steps of a pipeline need not be layers. Take the network of its last step: "
                "wc.neuralize(pipeline[-1]).to_torch(), for what pipeline[:-1].transform(X) gives."
            )
        try:
            from whycluster.models.torch_network import build
        except ImportError as error:
            raise MissingDependencyError('to_torch needs torch: pip install "whycluster[deep]"') from error
        codes = (
            np.arange(self.n_clusters)
            if cluster is None
            else self._labels.encode(cluster, "to_torch", "cluster")
        )
        return build(self.energy, np.atleast_1d(codes))

    def _check_threshold(
        self, threshold: Any, rule: str, beta: float | None, against: Any, where: str
    ) -> None:
        if not is_real(threshold) or not 0.0 < threshold < 1.0:
            raise InvalidInputError(
                f"{where}: threshold must be a probability between 0 and 1, both excluded; got {threshold!r}."
            )
        if not self.energy.gives_probabilities:
            raise InvalidInputError(
                f"{where}: threshold is for models that give probabilities, such as Gaussian mixtures; "
                "this one only compares its clusters. Leave it out."
            )
        if against is not None or beta is not None or rule != DEFAULT_RULE:
            raise InvalidInputError(
                f"{where}: threshold asks about a cluster against all others together, which fixes how they "
                "share; against, beta and rule do not go with it."
            )

    def _open_background(self, background: Any, table: Table) -> Table:
        """Matched by name with the columns of the model, or else of the frame that is explained."""
        framed = column_names(table.native, "explain", "X") is not None
        names = table.feature_names if framed else self.feature_names
        return self.open(background, "explain", name="background", model_names=names)

    def open(self, X: Any, where: str, *, name: str = "X", whole: bool = True, **names: Any) -> Table:
        """The user's rows as a table with the columns of this network, checked with the model if need be.

        ``whole`` says that these are all rows: then columns of categories must hold some that are known.
        """
        names.setdefault("model_names", self.feature_names)
        table = self._opener(
            X, where=where, name=name, n_features=self.n_features, categories=self.categories, **names
        )
        if whole and isinstance(table, MixedTable) and self.categories is not None:
            table.check_known()
        if self._verify is not None:
            self._verify(table, self._labels)
        return table

    def _codes(self, labels: Any, n_rows: int, name: str, where: str = "explain") -> Codes | None:
        """Codes of ``target`` or ``against``: one cluster for all rows, or one for each."""
        if labels is None:
            return None
        codes = self._labels.encode(labels, where, name)
        if codes.shape not in ((), (n_rows,)):
            raise InvalidInputError(
                f"{where}: {name} must be one cluster, or one for each of the {n_rows} rows; "
                f"got shape {codes.shape}."
            )
        return np.broadcast_to(codes, n_rows)  # read-only, and of no size if it is one cluster for all


def check_rule(rule: Any, where: str) -> None:
    """Raise unless it is the name of a rule."""
    if not isinstance(rule, str) or rule not in RULES:
        raise InvalidInputError(f"{where}: rule must be one of {', '.join(map(repr, RULES))}; got {rule!r}.")


def _check_beta(beta: Any, where: str) -> float | None:
    """The number given, None for "auto"."""
    if isinstance(beta, str) and beta == "auto":
        return None
    if is_real(beta) and beta > 0 and _float(beta) > 0.0:
        return _float(beta)
    raise InvalidInputError(
        f'{where}: beta must be "auto" or a number above 0 (infinity: the nearest competitor takes all); '
        f"got {beta!r}."
    )


def _float(number: Any) -> float:
    try:
        return float(number)
    except OverflowError:  # a whole number of more than 308 digits
        return float("inf")
