"""Statements: how a feature of a cluster compares with the clusters that its rows compete with.

Summaries, sentences, reports and plots describe clusters with these statements only. A statement names the
clusters that it holds against, and the values that it compares.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from whycluster.data import display
from whycluster.data.labels import NOISE, cluster_name
from whycluster.explanations.wording.formatting import capitalize, join_words, list_clusters

HIGHER, LOWER, BETWEEN, SAME, MISSING, FAR = "higher", "lower", "between", "same", "missing", "far"
_ABOVE, _BELOW = "above", "below"
_OF_DATES = {HIGHER: "later", LOWER: "earlier", _ABOVE: "after", _BELOW: "before"}
_OF_BOOLEANS = {
    HIGHER: "more often true",
    LOWER: "less often true",
    SAME: "as often true",
    _ABOVE: "more often true than in",
    _BELOW: "less often true than in",
}


class Statement(NamedTuple):
    """A fact about a feature of a cluster, compared with the clusters that its members compete with.

    Attributes
    ----------
    cluster : the label of the cluster
    feature : the name of the feature
    direction : "higher" or "lower" if the mean of the cluster is above or below the means of all clusters in
        ``against``; "between" if it is above some and below others; "same" if the means are equal; "missing"
        if over half of the values are missing, a larger share than in the other rows; "far" for noise; "" if
        there is nothing to compare. For a categorical feature, the category that adds most to the cluster's
        relevance, of those that at least a tenth of its rows have.
    against : the labels of the clusters that the statement compares with
    value : the mean in the cluster, or the frequency of the category or of missing values. A mean date is in
        days since 1970, and a mean of booleans is the share of the values that are true.
    values : the same for each cluster in ``against``
    share : the feature's share of the cluster's relevance
    is_category : whether the direction is a category
    is_date, is_boolean : whether the values are dates or booleans
    overall : the same as ``value``, in all rows
    note : why there is nothing to compare, if the direction is ""
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
    is_boolean: bool = False
    overall: float = math.nan
    note: str = ""

    @property
    def text(self) -> str:
        """The statement as a clause: "age is higher (mean 52.1) than in cluster 3 (31.4)"."""
        name = display.format_items([self.feature])[0]
        if self.direction == FAR:
            return f"{name} is far from the clusters"
        if not self.direction:
            return f"{name} has {self.note}"
        own, *others = self.texts
        if self.is_frequency:
            return f"{name} is {self.word} ({own}{_elsewhere(self.against, others)}){self._caution()}"
        value = f"({own})" if self.is_boolean else f"(mean {own})"
        if self.direction == BETWEEN:
            return f"{name} {value} is {self._sides(' and ', others)}"
        clusters = _with_values(self.against, others)
        if self.direction == SAME and not self.is_boolean:
            return f"{name} has the same mean ({own}) as in {clusters}"
        return f"{name} is {self.word} {value} {self._than} {clusters}{self._caution()}"

    @property
    def comparison(self) -> str:
        """The comparison without the feature and its value: "higher than in cluster 3 (31.4)"."""
        if not self.direction:
            return self.note
        if self.direction == FAR or not self.against:
            return self.word
        _, *others = self.texts
        if self.is_frequency:
            return f"{self.word}; {in_clusters(self.against, others)}{self._caution()}"
        if self.direction == BETWEEN:
            return self._sides(", ", others)
        return f"{self.word} {self._than} {_with_values(self.against, others)}{self._caution()}"

    @property
    def word(self) -> str:
        """The direction in a few words, such as "higher", "later", "mostly red" or "more often true"."""
        if not self.is_frequency:
            return self._words.get(self.direction, self.direction)
        what = self.direction if not self.is_category else display.format_items([self.direction])[0]
        if self.value > 0.5:
            return f"mostly {what}"
        is_more = self.is_most_frequent or not self.against
        return f"more often {what}" if is_more else f"partly {what}"

    @property
    def phrase(self) -> str:
        """The direction and the clusters that it holds against: "higher than in 3"."""
        if self.is_frequency or not self.against:
            return self.word
        if self.direction == BETWEEN:
            return self._sides(", ")
        return f"{self.word} {self._than} {join_words(display.format_items(self.against))}"

    @property
    def headline(self) -> tuple[str, str, str]:
        """The words before the name, the name, and the words after it, which several features may share."""
        name = display.format_items([self.feature])[0]
        if self.is_frequency and not (self.against and not self.above):
            own, *others = self.texts
            words, caution = f"{self.word} ({own}{_elsewhere(self.against, others)})", self._caution()
            return ("", name, words + caution) if caution else ("", f"{name} {words}", "")
        if self.is_frequency or not self.against:
            return "set apart by", name, ""
        if self.direction == BETWEEN:
            return "", name, self._sides(" and ")
        clusters = list_clusters(display.format_items(self.against))
        if self.is_boolean:
            return "", name, f"{self.word} {self._than} {clusters}{self._caution(False)}"
        if self.direction == SAME:
            return "same mean of", name, f"as {clusters}"
        before, after = ("", f"{self.word} ") if self.is_date else (self.word, "")
        return before, name, f"{after}than {clusters}{self._caution(False)}"

    @property
    def is_frequency(self) -> bool:
        """Whether the values are frequencies of a category or of missing values."""
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
    def is_unlike_overall(self) -> bool:
        """Whether the value is above those in ``against`` but below that of all rows, or the reverse."""
        is_higher = self.direction == HIGHER or (self.is_frequency and self.is_most_frequent)
        is_lower = self.direction == LOWER and not self.is_frequency
        return (is_higher and self.value < self.overall) or (is_lower and self.value > self.overall)

    @property
    def is_most_frequent(self) -> bool:
        """Whether the value is above those of all clusters in ``against``, of which there is at least one."""
        return bool(self.against) and len(self.above) == len(self.against)

    @property
    def formatted(self) -> str:
        """The value in the cluster as text."""
        return self.texts[0] if self.value == self.value else ""

    @property
    def texts(self) -> list[str]:
        """The value in the cluster, then those of the clusters in ``against``, as text."""
        return self._all_texts[: 1 + len(self.values)]

    @property
    def _all_texts(self) -> list[str]:
        """All values that are shown: those in `texts` and, if it is mentioned, that of all rows."""
        return self.format([self.value, *self.values, *[self.overall] * self.is_unlike_overall])

    def format(self, values: Sequence[float]) -> list[str]:
        """Format values of the feature, with enough digits to tell the first one apart from others."""
        if self.is_frequency or self.is_boolean:
            return display.format_frequencies(values)
        return display.format_dates(values) if self.is_date else display.format_apart(values)

    @property
    def _words(self) -> dict[str, str]:
        """The words for directions that are specific to this kind of values."""
        if self.is_boolean:
            return _OF_BOOLEANS
        return _OF_DATES if self.is_date else {}

    @property
    def _than(self) -> str:
        return "as in" if self.direction == SAME else "than in"

    def _sides(self, between: str, others: Sequence[str] | None = None) -> str:
        """Return "above cluster 3 (1.2) and below cluster 1 (9.3)", or the same without values."""
        texts = dict(zip(self.against, others or self.against, strict=True))
        parts = []
        for word, side in ((_ABOVE, self.above), (_BELOW, self.below)):
            named = list_clusters(display.format_items(side))
            if others is not None:
                named = _with_values(side, [texts[label] for label in side])
            parts.append(f"{self._words.get(word, word)} {named}")
        return between.join(parts)

    def _caution(self, with_value: bool = True) -> str:
        """Return ", though above the overall mean (50)" if the direction may mislead, and "" otherwise."""
        if not self.is_unlike_overall:
            return ""
        is_above, value = self.value > self.overall, f" ({self._all_texts[-1]})" * with_value
        if self.is_frequency or self.is_boolean:
            return f", though {'more' if is_above else 'less'} often than overall{value}"
        side = _ABOVE if is_above else _BELOW
        return f", though {self._words.get(side, side)} the overall mean{value}"


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


def headline(statements: Sequence[Statement], is_noise: bool, rest: str = "") -> str:
    """Describe a cluster in one line: "Higher a and b, lower c than cluster 3; higher d than cluster 1".

    ``rest`` is a remark on all other features.
    """
    if is_noise:
        names = display.format_items([each.feature for each in statements])
        return "Far from all clusters" + f", mostly in {join_words(names)}" * bool(names)
    if not statements:
        return "No feature sets it apart"
    phrases: dict[str, dict[str, list[str]]] = {}
    for before, item, after in (each.headline for each in statements):
        phrases.setdefault(after, {}).setdefault(before, []).append(item)
    parts = []
    for after, words in phrases.items():
        named = ", ".join(f"{before} {join_words(some)}".strip() for before, some in words.items())
        parts.append(f"{named} {after}".strip())
    first = next(iter(next(iter(phrases.values()))))
    text = "; ".join([*parts, *[rest] * bool(rest)])
    return capitalize(text) if first else text  # a name keeps its case
