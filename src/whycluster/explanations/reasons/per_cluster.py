"""The base class of `Rules` and `Strategies`: results with one entry per cluster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Generic, Protocol, TypeVar

from whycluster.data.labels import Labels, as_labels


class _Entry(Protocol):
    @property
    def cluster(self) -> Any:
        """The label of the cluster."""


Entry = TypeVar("Entry", bound=_Entry)


class PerCluster(ABC, Generic[Entry]):
    """Entries of clusters, which can be looked up by the labels of the clusters and printed."""

    clusters: tuple[Entry, ...]

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.clusters)

    def __len__(self) -> int:
        return len(self.clusters)

    def __getitem__(self, cluster: Any) -> Entry:
        """Return the entry of a cluster, given its label."""
        labels = as_labels([each.cluster for each in self.clusters])
        return self.clusters[int(Labels(labels).encode(cluster, type(self).__name__.lower(), "cluster"))]

    @abstractmethod
    def describe(self) -> str:
        """Return the result as text."""

    def __str__(self) -> str:
        return self.describe()

    __repr__ = __str__  # a notebook shows the table too
