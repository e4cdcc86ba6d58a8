"""Networks: clustering models as energies with min-pooling on top (Prop. 1), and queries about rows.

`Query` holds the options of `explain`. `Network` is the base class of all networks; `TableNetwork` is the
network for rows of features. The networks for pipelines, documents and encoders are in the folders
``pipelines``, ``text`` and ``deep``.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whycluster.core import outputs
from whycluster.core.arrays import Floats
from whycluster.core.attribution import Attribution, CodedQuery, Population, attribute, population
from whycluster.core.energies import Energy, SquaredEnergy
from whycluster.core.errors import InvalidInputError, MissingDependencyError, UnsupportedModelError
from whycluster.core.rules import CONTRAST, DEFAULT_RULE, RULES, SOFT
from whycluster.data import registry
from whycluster.data.arrays import is_dask, is_real
from whycluster.data.frame_table import ColumnNames
from whycluster.data.labels import Labels, Renamable
from whycluster.data.mixed_table import MixedTable
from whycluster.data.opening import column_names, open_table
from whycluster.data.settings import setting
from whycluster.data.table import Table
from whycluster.data.usual_rows import warn_of_unusual_rows
from whycluster.data.validation import check_choice
from whycluster.explanations.agreement import Agreement
from whycluster.explanations.base import BaseExplanation
from whycluster.explanations.explanation import Explanation
from whycluster.explanations.few_rows import ENOUGH, warn_of_few_rows
from whycluster.explanations.fidelity import Fidelity
from whycluster.models.scaling import Scaling, no_centroids
from whycluster.models.tiles import attribute_each
from whycluster.models.verification import Verification

if TYPE_CHECKING:
    import onnx
    import torch
    from typing_extensions import Self, Unpack


class QueryOptions(TypedDict, total=False):
    """The parameters of `Query`, as keyword arguments of the functions that take a query."""

    target: Any
    against: Any
    beta: float | str
    rule: str | None
    threshold: float | None
    background: Any


@dataclass(frozen=True)
class Query:
    """What to explain about each row.

    Parameters
    ----------
    target : the cluster to explain, for all rows or one per row. A row that is in another cluster gets the
        answer to "why not this one?": its contrast with the cluster that won (in a tree, with the pair of
        nodes that decides most clearly against the target). By default the cluster of each row.
    against : the competitor, for all rows or one per row. Explains why the row is in its cluster rather than
        in the competitor. Rows in the competitor have evidence and relevance 0.
    beta : the stiffness of the soft minimum over the competitors. For the rules "min-take-most" and "joint",
        "auto" is 1 / (mean evidence), Eq. 3 of the paper. For "path" and "sequential", it is the stiffness of
        the model's own probabilities or, if the model has none, four times that value. Infinity lets the
        nearest competitor take all. Contrasts do not use beta.
    rule : how the evidence is shared among the competitors: "path" (averaged as the evidence grows from none
        to all of it, so that large clusters and close competitors count more), "min-take-most" (the paper's
        rule), "joint" (the paper's shares, but one denominator for all competitors), "sequential" (features
        are added one after another, each is credited with its own gain, and this is blended with "path";
        results can jump where the order changes) or "contrast" (the strongest competitor only). By default
        the `default_rule` of the network, which is "path" for tables and text.
    threshold : for models that give probabilities, such as mixtures: explain why the probability of the
        cluster is above this threshold (or below it) instead of why it is the largest (Prop. 7)
    background : (m, d) the population on which beta and, for "path" and "sequential", the cluster sizes are
        measured; by default the explained rows. Pass the whole table if you explain only a few of its rows.
    """

    target: Any = None
    against: Any = None
    beta: float | str = "auto"
    rule: str | None = None
    threshold: float | None = None
    background: Any = None

    def coded(
        self, labels: NDArray[Any], energy: Energy | None, where: str, default_rule: str = DEFAULT_RULE
    ) -> CodedQuery:
        """Check the query before any row is read, and return it with clusters as codes.

        Parameters
        ----------
        labels : (K,) the labels of the clusters
        energy : the energy of the model, or None if it is not fitted yet
        where : the public function that was called
        default_rule : the rule for a query without one
        """
        beta = self._stiffness(where)
        rule = default_rule if self.rule is None else self.rule
        if self.rule is not None:
            check_rule(rule, where)
        if self.threshold is not None:
            self._check_threshold(energy, beta, where)
        cluster, competitor = (
            None if given is None else Labels(labels).encode(given, where, setting(name))
            for name, given in (("target", self.target), ("against", self.against))
        )
        one_pair = cluster is not None and competitor is not None and cluster.ndim == competitor.ndim == 0
        if one_pair and cluster == competitor:
            raise InvalidInputError(
                f"{where}: {setting('against')} must differ from {setting('target')}; both are "
                f"{self.target!r}."
            )
        if self.threshold is not None:
            return CodedQuery(cluster, None, SOFT, 1.0, float(self.threshold))
        if competitor is None and rule != CONTRAST:
            return CodedQuery(cluster, None, rule, beta)
        return CodedQuery(cluster, competitor)

    def _stiffness(self, where: str) -> float | None:
        """Return beta as a number, or None for "auto"."""
        if isinstance(self.beta, str) and self.beta == "auto":
            return None
        if is_real(self.beta):
            is_huge = isinstance(self.beta, int) and self.beta > sys.float_info.max
            beta = math.inf if is_huge else float(self.beta)
            if beta > 0.0:
                return beta
        raise InvalidInputError(
            f'{where}: {setting("beta")} must be "auto" or a number above 0 (with infinity, only the '
            f"nearest competitor counts); got {self.beta!r}."
        )

    def _check_threshold(self, energy: Energy | None, beta: float | None, where: str) -> None:
        threshold = self.threshold
        if not is_real(threshold) or not 0.0 < threshold < 1.0:  # type: ignore[operator]
            raise InvalidInputError(
                f"{where}: {setting('threshold')} must be a probability strictly between 0 and 1; got "
                f"{threshold!r}."
            )
        if self.against is not None or beta is not None or self.rule is not None:
            raise InvalidInputError(
                f"{where}: {setting('threshold')} compares a cluster with all others at once, which fixes "
                f"how they share the evidence, so it cannot be combined with {setting('against')}, "
                f"{setting('beta')} or {setting('rule')}."
            )
        if energy is not None and not energy.gives_probabilities:
            raise InvalidInputError(
                f"{where}: {setting('threshold')} applies only to models that give probabilities, such as "
                "Gaussian mixtures; this model gives none. Leave it out."
            )


class NetworkOptions(TypedDict, total=False):
    """The optional parameters that all kinds of `Network` share."""

    labels: ArrayLike | None
    feature_names: Sequence[Hashable] | None
    fidelity: Fidelity | None
    agreement: Agreement | None


class Network(Renamable, ABC):
    """A clustering model as a neural network, which assigns rows like the model and can be explained.

    Returned by `whycluster.neuralize`.

    Parameters
    ----------
    energy : the energies s_k and their splits over the features
    labels : (K,) the model's names for its clusters; by default 0..K-1
    feature_names : (d,) the names of the columns that the model was fitted on, or None
    fidelity : for a surrogate, how well it matches the clustering that it approximates
    agreement : for a model that gives only labels, how well the network reproduces them
    """

    def __init__(
        self,
        energy: Energy,
        *,
        labels: ArrayLike | None = None,
        feature_names: Sequence[Hashable] | None = None,
        fidelity: Fidelity | None = None,
        agreement: Agreement | None = None,
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
        self.labels = np.arange(energy.n_clusters) if labels is None else Labels(labels).names
        self.labels.flags.writeable = False
        if len(self.labels) != energy.n_clusters:
            raise InvalidInputError(
                f"neuralize: labels must be {energy.n_clusters} names, one per cluster; "
                f"got {len(self.labels)}."
            )
        self.fidelity, self.agreement = fidelity, agreement

    @abstractmethod
    def open(
        self, X: Any, where: str, *, name: str = "X", whole: bool = True, **columns: Unpack[ColumnNames]
    ) -> Table:
        """Return the user's rows as a table with the columns of this network.

        If the model's own predictions have to be compared with the network, they are compared on these rows.

        Parameters
        ----------
        X : the rows
        where, name : the function that was called and its parameter, for messages
        whole : whether these are all rows; if so, categorical columns must hold some known category
        columns : ``feature_names``, the user's names for the columns of an array, and ``model_names``, with
            which the columns of a frame are matched (by default the model's names)
        """

    @property
    @abstractmethod
    def takes_any_kind(self) -> bool:
        """Whether columns may hold values other than numbers."""

    @property
    @abstractmethod
    def text_columns(self) -> frozenset[int]:
        """The positions of features that the model, or a step before it, treats as text."""

    categories: Sequence[Sequence[Any] | None] | None = None
    """For each feature its categories in the order of their codes, or None if it is numeric."""
    explains_columns = True
    """Whether relevance is given by column, so that rows can be explained in parts."""
    rows_alone = True
    """Whether the cluster of a row depends on this row alone."""
    is_checked = False
    """Whether all rows are compared with the model's own prediction."""
    model: Any = None
    """The model that the network was made from, if known."""
    is_deep = False
    """Whether an encoder computes the features from the user's inputs."""
    default_rule = DEFAULT_RULE
    """The rule of a query without one."""
    landmarks: Floats | None = None
    """(m, d) points among the rows that the model was fitted on, if known and all features are numeric."""

    labels: NDArray[Any]
    """(K,) the clusters' labels, in the order of the columns of `evidence`."""

    @cached_property
    def codes(self) -> Labels:
        """The translation between labels and codes 0..K-1."""
        return Labels(self.labels)

    def with_labels(self, labels: NDArray[Any]) -> Self:
        """Return the network with other labels, (K,)."""
        network = copy(self)
        vars(network).pop("codes", None)
        network.fidelity = self.fidelity and self.fidelity.relabeled(self.codes, labels)
        network.agreement = self.agreement and self.agreement.relabeled(self.codes, labels)
        network.labels = labels
        return network

    def without_noise(self) -> Network:
        """Return the network of the clusters alone, which assigns noise to the nearest cluster.

        Its explanations compare a cluster with other clusters only. With noise, the competitor of most rows
        is noise, and the evidence answers "why is this row not noise?".
        """
        raise self._no_noise()

    def _no_noise(self) -> UnsupportedModelError:
        return UnsupportedModelError(
            "without_noise: the network must treat rows far from all clusters as noise, as that of DBSCAN "
            "does, and have at least 2 other clusters. Compare two clusters with against= instead."
        )

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
        counts = f"{self.n_clusters} clusters, {self.n_features} feature{'s' * (self.n_features != 1)}"
        return f"<{type(self).__name__} of {counts} ({kind})>"

    def assign(self, X: Any) -> NDArray[Any]:
        """Return the cluster of each row, (n,), as the model itself predicts it.

        On an exact tie, the cluster that comes first in `labels` wins. For a Dask array or DataFrame, the
        result is a Dask array with the same chunks.

        Parameters
        ----------
        X : (n, d) the rows, as in `explain`
        """
        if is_dask(X):
            check_rows_alone(self, "assign")
            lazy: NDArray[Any] = registry.load("assign_lazily")(self, X)
            return lazy
        return self.codes.decode(outputs.assign(self.energy, self.open_usual(X, "assign")))

    def evidence(self, X: Any) -> NDArray[Any]:
        """Return the evidence f_c for every cluster, (n, K); it is positive only for the assigned cluster.

        Parameters
        ----------
        X : (n, d) the rows, as in `explain`
        """
        return outputs.evidence_of_every_cluster(self.energy, self.open_usual(X, "evidence"))

    def gradient(self, X: Any, target: Any = None) -> NDArray[Any]:
        """Return the gradient of the evidence f_c of each row, (n, d), the direction in which f_c increases.

        It is computed in closed form for every model. f_c is a minimum over the competitors, so its gradient
        is the one against the strongest competitor (the first one on a tie). Categories have gradient 0.

        Parameters
        ----------
        X : (n, d) the rows, as in `explain`
        target : the cluster c, for all rows or one per row; by default the cluster of each row. If a row is
            not in it, the strongest competitor is the cluster that won (in a tree, the one below the pair of
            nodes that decides most clearly against the target).
        """
        table = self.open(X, "gradient")
        if table.goes_through_steps:
            raise UnsupportedModelError(
                "gradient: a pipeline has no gradient, since its steps need not be differentiable. Take the "
                "gradient of its last step with respect to the features that the steps compute: "
                "wc.neuralize(pipeline[-1]).gradient(pipeline[:-1].transform(X))."
            )
        cluster = None if target is None else self.codes.encode(target, "gradient", "target")
        return outputs.slopes(self.energy, table, CodedQuery(cluster))[1]

    def explain(
        self,
        X: Any,
        *,
        feature_names: Sequence[Hashable] | None = None,
        at: str | None = None,
        units: str | None = None,
        **query: Unpack[QueryOptions],
    ) -> Explanation:
        """Explain why each row is in its cluster.

        Parameters
        ----------
        X, feature_names, at, units : as for `whycluster.explain`
        query : the options of `whycluster.Query`
        """
        if at is not None or units is not None:
            raise InvalidInputError(
                "explain: at and units apply only to deep clusterings, which have layers; this model has "
                "none. Leave at and units out."
            )
        asked = Query(**query)
        coded = asked.coded(self.labels, self.energy, "explain", self.default_rule)
        explanation: Any = self.explain_rows(X, coded, asked.background, feature_names)
        if (explanation.cluster_codes == explanation.competitor_codes).all():
            raise InvalidInputError(
                "explain: against must differ from the explained cluster; they are the same in every row "
                "of X."
            )
        if self.fidelity is not None:
            self.fidelity.warn_if_low()
        if self.agreement is not None:
            self.agreement.warn_if_low()
        if asked.background is None and explanation.evidence.size < ENOUGH * len(self.labels):
            warn_of_few_rows(explanation, coded)
        return replace(explanation, agreement=self.agreement, model=self.model)  # type: ignore[no-any-return]  # or a TextExplanation

    def explain_rows(
        self, X: Any, query: CodedQuery, background: Any, feature_names: Sequence[Hashable] | None
    ) -> BaseExplanation:
        """Explain rows in terms of features; the background (by default, the rows) is measured."""
        table = X
        if not isinstance(X, Table):
            table = self.open_usual(X, "explain", feature_names=feature_names)
        energy, explain = self.energy, attribute_each if isinstance(background, Population) else attribute
        if background is not None and not isinstance(background, Population):
            background = self.open_background(background, table)
        if background is not None and energy.needs_means:  # also for questions about the explanation
            background = population(energy, background)
            energy = energy.with_means(background.means, background.sizes)
        found = explain(energy, table, query, background)
        return Explanation(
            relevance=found.relevance, **{**self.claims(found, query, table), "energy": energy}
        )

    def claims(self, found: Attribution, query: CodedQuery, table: Table) -> dict[str, Any]:
        """Return what every explanation of these rows holds: the fields of `BaseExplanation`."""
        return {
            "evidence": found.evidence,
            "beta": found.beta,
            "rule": query.rule,
            "labels": self.labels,
            "cluster_codes": found.cluster,
            "competitor_codes": found.competitor,
            "energy": self.energy,
            "table": table,
            "is_targeted": query.cluster is not None,
            "threshold": query.threshold,
            "prior": found.prior,
            "fidelity": self.fidelity,
        }

    def to_torch(self, cluster: Any = None) -> torch.nn.Module:
        """Return the network as a `torch.nn.Module` in float64; it takes rows, (n, d), as a float64 tensor.

        The output equals `evidence`: (n, K), or (n, 1) for one cluster; autograd gives `gradient`.

        - Nearest centroids and soft heads: a linear layer with a unit for each ordered pair of clusters,
          K (K - 1) of them, then a minimum (Props. 1 and 6). For the cosine distance, rows are first scaled
          to unit length.
        - Kernel k-means: a unit for each pair of support vectors, a soft maximum and a soft minimum, then
          the minimum (Prop. 5).
        - Trees: a linear unit for each pair of nodes, then the minimum over the path to each cluster.
        - All other models, which are not linear: the energies, their differences and the minimum. Categories
          are codes 0, 1, ..., in the order of the model's encoding; other numbers match no cluster.

        Parameters
        ----------
        cluster : the label of the only cluster to return the evidence for; by default all clusters
        """
        try:
            from whycluster.models.torch_network import build
        except ImportError as error:
            raise MissingDependencyError('to_torch needs torch: pip install "whycluster[deep]"') from error
        every = np.arange(self.n_clusters)
        codes = every if cluster is None else self.codes.encode(cluster, "to_torch", "cluster")
        return build(self.energy, np.atleast_1d(codes))

    def to_onnx(
        self,
        background: Any = None,
        *,
        rule: str | None = None,
        beta: float | str = "auto",
        dtype: str = "float64",
    ) -> onnx.ModelProto:
        """Return a nearest-centroid model, with its scalers, and its explanations as an ONNX model.

        The input ``X``, (n, d), holds the columns of the network. The outputs are ``cluster`` and
        ``competitor``, (n,), as positions in `labels`; ``evidence``, (n,); and ``relevance``, (n, d). For a
        row with a missing or infinite value, the cluster and the competitor are -1, and the evidence and the
        relevance are NaN. The metadata contain ``labels``, ``feature_names``, ``rule`` and ``beta`` as JSON.

        Parameters
        ----------
        background : (m, d) the rows on which beta and the sizes of the clusters are measured, usually those
            that the model was fitted on. The model stores the result, so the relevance of a row does not
            depend on the other rows. Contrasts need no background.
        rule, beta : as for `whycluster.Query`, except for the rule "sequential"
        dtype : that of the rows, the evidence and the relevance, "float64" or "float32". The arithmetic is in
            float64 in both cases.

        Examples
        --------
        >>> import whycluster as wc
        >>> X = [[0.0], [1.0], [5.0], [9.0]]
        >>> model = wc.neuralize([[0.0], [4.0], [9.0]]).to_onnx(X)
        >>> [output.name for output in model.graph.output]
        ['cluster', 'competitor', 'evidence', 'relevance']
        """
        try:
            from whycluster.models.onnx_network import Facts, build, check_options, complete
        except ImportError as error:
            raise MissingDependencyError('to_onnx needs onnx: pip install "whycluster[onnx]"') from error
        query = Query(rule=rule, beta=beta).coded(self.labels, self.energy, "to_onnx", self.default_rule)
        check_options(query.rule, dtype)
        energy, scaling = self.scaled_centroids()
        names = self.feature_names or [f"x{i}" for i in range(self.n_features)]
        if background is not None and not isinstance(background, Population):
            background = self.open(background, "to_onnx", name="background")
            names = background.feature_names
        query = complete(query, self.energy, background)
        facts = Facts(self.labels, names, query.rule, query.beta)
        return build(energy, scaling, query.sharing, dtype, facts)

    def scaled_centroids(self) -> tuple[SquaredEnergy, Scaling | None]:
        """Return the centroids for `to_onnx`, and the scalers before them or None; refuse other models."""
        raise no_centroids(f"{type(self).__name__} ({self.energy.title})")

    def open_usual(self, X: Any, where: str, **columns: Unpack[ColumnNames]) -> Table:
        """Return rows as `open` does; warn if they lie far outside the clusters, such as raw rows."""
        table = self.open(X, where, **columns)
        warn_of_unusual_rows(self.landmarks, table)
        return table

    def open_background(self, background: Any, table: Table) -> Table:
        """Open the background, with its columns matched to those of the model or of the explained frame."""
        framed = column_names(table.native, "explain", "X") is not None
        names = table.feature_names if framed else self.feature_names
        return self.open(background, "explain", name="background", model_names=names)


class TableNetwork(Network):
    """The network of a model that takes rows of features directly, without other steps.

    Parameters
    ----------
    energy : the energies s_k and their splits over the features
    categories : for each feature its categories in the order of their codes, or None if it is numeric
    verification : compares the model's own predictions with this network, on all rows that are opened
    options : ``labels``, ``feature_names``, ``fidelity`` and ``agreement``, as for `Network`
    """

    def __init__(
        self,
        energy: Energy,
        *,
        categories: Sequence[Sequence[Any] | None] | None = None,
        verification: Verification | None = None,
        **options: Unpack[NetworkOptions],
    ) -> None:
        super().__init__(energy, **options)
        self.categories, self.verification = categories, verification
        self.is_checked = verification is not None
        self.landmarks = energy.landmarks if categories is None else None

    def without_noise(self) -> Network:
        """Return the network of the clusters alone, which assigns noise to the nearest cluster."""
        energy = self.energy.without_noise
        if energy is None or energy.n_clusters < 2:
            raise self._no_noise()
        network = copy(self)
        vars(network).pop("codes", None)
        network.energy, network.labels = energy, self.labels[:-1]
        return network

    def scaled_centroids(self) -> tuple[SquaredEnergy, Scaling | None]:
        """Return the centroids, which no scalers precede."""
        if type(self.energy) is not SquaredEnergy:
            raise no_centroids(f"{type(self.energy).__name__} ({self.energy.title})")
        return self.energy, None

    @property
    def takes_any_kind(self) -> bool:
        """Whether some features are categorical."""
        return self.categories is not None

    @property
    def text_columns(self) -> frozenset[int]:
        """The positions of features whose categories are text."""
        known = enumerate(self.categories or [])
        return frozenset(i for i, names in known if names and all(isinstance(name, str) for name in names))

    def open(
        self, X: Any, where: str, *, name: str = "X", whole: bool = True, **columns: Unpack[ColumnNames]
    ) -> Table:
        """Return the user's rows as a table with the columns of this network."""
        columns.setdefault("model_names", self.feature_names)
        table = open_table(
            X, where=where, name=name, n_features=self.n_features, categories=self.categories, **columns
        )
        if whole and isinstance(table, MixedTable):
            table.check_known()
        if self.verification is not None:
            self.verification.check(table, self.codes)
        return table


def check_rows_alone(network: Network, where: str) -> None:
    """Raise an error if the cluster of a row depends on other rows."""
    if not network.rows_alone:
        raise UnsupportedModelError(
            f"{where}: the model must assign each row alone; the state of a time step depends on those "
            "around it. Use wc.explain on each sequence as a whole."
        )


def check_rule(rule: Any, where: str) -> None:
    """Raise an error unless ``rule`` is the name of a rule."""
    check_choice(rule, RULES, where, setting("rule"))
