"""Statements: how a feature of a cluster compares with the clusters that its rows compete with.

Summaries, sentences, reports and plots describe clusters with these statements only. A statement names the
clusters that it holds against, and the values that it compares.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from whycluster.data import display
from whycluster.data.labels import NOISE, cluster_name
from whycluster.explanations.formatting import capitalize, join_words, list_clusters

HIGHER, LOWER, BETWEEN, SAME, MISSING, FAR = "higher", "lower", "between", "same", "missing", "far"
_OF_DATES = {HIGHER: "later", LOWER: "earlier", "above": "after", "below": "before"}
_SIDES = ("above", "below")


class Statement(NamedTuple):
    """A fact about a feature of a cluster, compared with the clusters that its members compete with.

    Attributes
    ----------
    cluster : the label of the cluster
    feature : the name of the feature
    direction : "higher" or "lower" if the mean of the cluster is above or below the means of all clusters in
        ``against``; "between" if it is above some and below others; "same" if the means are equal; "missing"
        if most values are missing, and more of them than in ``against``; "far" for noise; "" if there is
        nothing to compare. For a categorical feature, the category with the largest positive relevance, if it
        is more frequent than in ``against``.
    against : the labels of the clusters that the statement compares with
    value : the mean in the cluster, or the frequency of the category or of missing values. A mean date is in
        days since 1970.
    values : the same for each cluster in ``against``
    share : the feature's share of the cluster's relevance
    is_category : whether the direction is a category
    is_date : whether the values are dates
    """

    cluster: Any
    feature: Hashable
    direction: str
    against: tuple[Any, ...]
    value: float
    values: tuple[float, ...]
    share: float
    is_category: bool = False
    is_date: bool = False

    @property
    def text(self) -> str:
        """The statement as a clause: "age is higher (mean 52.1) than in cluster 3 (31.4)"."""
        name = display.format_items([self.feature])[0]
        if self.direction == FAR:
            return f"{name} is far from the clusters"
        if not self.direction:
            return f"there is nothing to compare for {name}"
        own, *others = self.texts
        clusters = _with_values(self.against, others)
        if self.is_frequency:
            return f"{name} is {self.word} ({own}{_elsewhere(self.against, others)})"
        if self.direction == SAME:
            return f"{name} has the same mean ({own}) as in {clusters}"
        if self.direction == BETWEEN:
            return f"{name} (mean {own}) is {self._sides(others)}"
        return f"{name} is {self.word} (mean {own}) than in {clusters}"

    @property
    def comparison(self) -> str:
        """The comparison without the feature and its value: "higher than in cluster 3 (31.4)"."""
        if self.direction in (FAR, "") or not self.against:
            return self.word
        _, *others = self.texts
        if self.is_frequency:
            return f"{self.word}; {in_clusters(self.against, others)}"
        if self.direction == BETWEEN:
            return self._sides(others, ", ")
        than = "as" if self.direction == SAME else "than"
        return f"{self.word} {than} in {_with_values(self.against, others)}"

    @property
    def word(self) -> str:
        """The direction in one or two words, such as "higher", "later", "mostly red" or "mostly missing"."""
        if not self.is_frequency:
            return _OF_DATES.get(self.direction, self.direction) if self.is_date else self.direction
        what = self.direction if not self.is_category else display.format_items([self.direction])[0]
        return f"mostly {what}" if self.value > 0.5 else f"more often {what}"

    @property
    def phrase(self) -> str:
        """The direction and the clusters that it holds against: "higher than in 3"."""
        if self.is_frequency or not self.against:
            return self.word
        if self.direction == BETWEEN:
            words = _OF_DATES if self.is_date else {}
            sides = zip(_SIDES, (self.above, self.below), strict=True)
            return ", ".join(f"{words.get(w, w)} {list_clusters(display.format_items(s))}" for w, s in sides)
        than, labels = "as" if self.direction == SAME else "than", display.format_items(self.against)
        return f"{self.word} {than} in {join_words(labels)}"

    @property
    def is_frequency(self) -> bool:
        """Whether the values are frequencies."""
        return self.is_category or self.direction == MISSING

    @property
    def above(self) -> tuple[Any, ...]:
        """The clusters in ``against`` that have a lower value."""
        return tuple(k for k, v in zip(self.against, self.values, strict=True) if v < self.value)

    @property
    def below(self) -> tuple[Any, ...]:
        """The clusters in ``against`` that have a higher value."""
        return tuple(k for k, v in zip(self.against, self.values, strict=True) if v > self.value)

    @property
    def formatted(self) -> str:
        """The value in the cluster as text."""
        return self.texts[0] if self.value == self.value else ""

    @property
    def texts(self) -> list[str]:
        """The value in the cluster, then those of the clusters in ``against``, as text."""
        values = [self.value, *self.values]
        if self.is_frequency:
            return display.format_frequencies(values)
        return display.format_dates(values) if self.is_date else display.format_apart(values)

    def _sides(self, others: Sequence[str], between: str = " and ") -> str:
        """Return "above cluster 3 (1.2) and below cluster 1 (9.3)"."""
        texts = dict(zip(self.against, others, strict=True))
        words = _OF_DATES if self.is_date else {}
        parts = []
        for word, side in (("above", self.above), ("below", self.below)):
            numbers = [texts[label] for label in side]
            parts.append(f"{words.get(word, word)} {_with_values(side, numbers)}")
        return between.join(parts)


def _with_values(clusters: Sequence[Any], texts: Sequence[str]) -> str:
    """Return clusters with their values: "cluster 3 (31.4)", or "clusters 1 (4.2) and 3 (31.4)"."""
    shown = display.format_items(clusters)
    names = [f"{name} ({text})" for name, text in zip(shown, texts, strict=True)]
    if NOISE in shown:
        return join_words(names)
    return f"cluster{'s' * (len(names) > 1)} {join_words(names)}"


def in_clusters(clusters: Sequence[Any], texts: Sequence[str]) -> str:
    """Return frequencies with their clusters: "31% in cluster 3 and 12% in cluster 1"."""
    shown = display.format_items(clusters)
    named = [cluster_name(c, name) for c, name in zip(clusters, shown, strict=True)]
    return join_words([f"{text} in {name}" for name, text in zip(named, texts, strict=True)])


def _elsewhere(clusters: Sequence[Any], texts: Sequence[str]) -> str:
    """Return frequencies in other clusters, as part of a parenthesis, or "" if there are no others."""
    return f", against {in_clusters(clusters, texts)}" if clusters else ""


def headline(statements: Sequence[Statement], is_noise: bool) -> str:
    """Describe a cluster in one line: "Higher a and b, lower c than cluster 3; higher d than cluster 1"."""
    names = display.format_items([each.feature for each in statements])
    if is_noise:
        return "Far from all clusters" + f", mostly in {join_words(names)}" * bool(names)
    if not statements:
        return "No feature sets it apart"
    phrases: dict[str, dict[str, list[str]]] = {}
    for each, name in zip(statements, names, strict=True):
        before, item, after = _phrase(each, name)
        phrases.setdefault(after, {}).setdefault(before, []).append(item)
    parts = []
    for after, words in phrases.items():
        named = ", ".join(f"{before} {join_words(some)}".strip() for before, some in words.items())
        parts.append(f"{named} {after}".strip())
    first = next(iter(next(iter(phrases.values()))))
    return capitalize("; ".join(parts)) if first else "; ".join(parts)  # a name keeps its case


def _phrase(statement: Statement, name: str) -> tuple[str, str, str]:
    """Return the words before the name, the name, and the words after it, which features may share."""
    clusters = list_clusters(display.format_items(statement.against)) if statement.against else ""
    if statement.is_frequency:
        own, *others = statement.texts
        return "", f"{name} {statement.word} ({own}{_elsewhere(statement.against, others)})", ""
    if not statement.against:
        return "set apart by", name, ""
    if statement.direction == SAME:
        return "same mean of", name, f"as {clusters}"
    if statement.direction == BETWEEN:
        sides = (list_clusters(display.format_items(side)) for side in (statement.above, statement.below))
        words = _OF_DATES if statement.is_date else {}
        above, below = (f"{words.get(word, word)} {side}" for word, side in zip(_SIDES, sides, strict=True))
        return "", name, f"{above} and {below}"
    if statement.is_date:
        return "", name, f"{statement.word} than {clusters}"
    return statement.word, name, f"than {clusters}"
