"""Statements: how a feature of a cluster compares with the clusters that its rows compete with.

Summaries, sentences, reports and plots describe clusters only with these statements. A statement names the
clusters that it compares with, and shows the values.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from whycluster.data import display
from whycluster.data.display import capitalize, join_words
from whycluster.data.labels import NOISE, cluster_name, list_clusters

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
        texts = self._all_texts
        own, others, names = texts[0], texts[1 : 1 + len(self.values)], display.format_items(self.against)
        if self.is_frequency:
            return f"{name} is {self.word} ({own}{self._elsewhere(names, others)}){self._caution(texts)}"
        value = f"({own})" if self.is_boolean else f"(mean {own})"
        if self.direction == BETWEEN:
            return f"{name} {value} is {self._sides(' and ', names, others)}"
        clusters = _with_values(names, others)
        if self.direction == SAME and not self.is_boolean:
            return f"{name} has the same mean ({own}) as in {clusters}"
        return f"{name} is {self.word} {value} {self._than} {clusters}{self._caution(texts)}"

    @property
    def comparison(self) -> str:
        """The comparison without the feature and its value: "higher than in cluster 3 (31.4)"."""
        return values_and_comparisons([self])[0][1]

    def compare(self, texts: Sequence[str], names: Sequence[str]) -> str:
        """Return the `comparison`, given the texts of `shown_values` and the names of the clusters."""
        if not self.direction:
            return self.note
        if self.direction == FAR or not self.against:
            return self.word
        others = texts[1 : 1 + len(self.values)]
        if self.is_frequency:
            return f"{self.word}; {self._in_clusters(names, others)}{self._caution(texts)}"
        if self.direction == BETWEEN:
            return self._sides(", ", names, others)
        return f"{self.word} {self._than} {_with_values(names, others)}{self._caution(texts)}"

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
        """The direction and the clusters that it refers to: "higher than in 3"."""
        if self.is_frequency or not self.against:
            return self.word
        names = display.format_items(self.against)
        if self.direction == BETWEEN:
            return self._sides(", ", names)
        return f"{self.word} {self._than} {join_words(names)}"

    def headline(self, name: str, texts: Sequence[str], names: Sequence[str]) -> tuple[str, str, str]:
        """Return the words before the name, the name, and the words after it, which features may share.

        ``name`` is the name of the feature; ``texts`` and ``names`` are as in `compare`.
        """
        if self.is_frequency and not (self.against and not self.above):
            elsewhere = self._elsewhere(names, texts[1 : 1 + len(self.values)])
            words, caution = f"{self.word} ({texts[0]}{elsewhere})", self._caution(texts)
            return ("", name, words + caution) if caution else ("", f"{name} {words}", "")
        if self.is_frequency or not self.against:
            return "set apart by", name, ""
        if self.direction == BETWEEN:
            return "", name, self._sides(" and ", names)
        clusters = list_clusters(names)
        if self.is_boolean:
            return "", name, f"{self.word} {self._than} {clusters}{self._caution()}"
        if self.direction == SAME:
            return "same mean of", name, f"as {clusters}"
        before, after = ("", f"{self.word} ") if self.is_date else (self.word, "")
        return before, name, f"{after}than {clusters}{self._caution()}"

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
        return values_and_comparisons([self])[0][0]

    @property
    def texts(self) -> list[str]:
        """The value in the cluster, then those of the clusters in ``against``, as text."""
        return self._all_texts[: 1 + len(self.values)]

    @property
    def _all_texts(self) -> list[str]:
        return format_values([self], [self.shown_values])[0]

    @property
    def shown_values(self) -> list[float]:
        """The values in the cluster and in those in ``against`` and, if it is mentioned, in all rows."""
        return [self.value, *self.values, *[self.overall] * self.is_unlike_overall]

    @property
    def is_number(self) -> bool:
        """Whether the values are means of numbers."""
        return not (self.is_frequency or self.is_boolean or self.is_date)

    @property
    def _words(self) -> dict[str, str]:
        """The words for directions that are specific to this kind of values."""
        if self.is_boolean:
            return _OF_BOOLEANS
        return _OF_DATES if self.is_date else {}

    @property
    def _than(self) -> str:
        return "as in" if self.direction == SAME else "than in"

    def _sides(self, between: str, names: Sequence[str], texts: Sequence[str] | None = None) -> str:
        """Return "above cluster 3 (1.2) and below cluster 1 (9.3)", or the same without values."""
        place, parts = {label: i for i, label in enumerate(self.against)}, []
        for word, side in ((_ABOVE, self.above), (_BELOW, self.below)):
            own = [place[label] for label in side]
            some = [names[i] for i in own]
            named = list_clusters(some) if texts is None else _with_values(some, [texts[i] for i in own])
            parts.append(f"{self._words.get(word, word)} {named}")
        return between.join(parts)

    def _in_clusters(self, names: Sequence[str], texts: Sequence[str]) -> str:
        """Return frequencies with their clusters: "31% in cluster 3 and 12% in cluster 1"."""
        named = [cluster_name(label, name) for label, name in zip(self.against, names, strict=True)]
        return join_words([f"{text} in {name}" for name, text in zip(named, texts, strict=True)])

    def _elsewhere(self, names: Sequence[str], texts: Sequence[str]) -> str:
        """Return frequencies in other clusters, as part of a parenthesis, or "" if there are no others."""
        return f", against {self._in_clusters(names, texts)}" if names else ""

    def _caution(self, texts: Sequence[str] = ()) -> str:
        """Return ", though above the overall mean (50)" if the direction may mislead, and "" otherwise.

        ``texts`` are those of `shown_values`; without them, the overall value is left out.
        """
        if not self.is_unlike_overall:
            return ""
        is_above, value = self.value > self.overall, f" ({texts[-1]})" if texts else ""
        if self.is_frequency or self.is_boolean:
            return f", though {'more' if is_above else 'less'} often than overall{value}"
        side = _ABOVE if is_above else _BELOW
        return f", though {self._words.get(side, side)} the overall mean{value}"


def format_values(statements: Sequence[Statement], values: Sequence[Sequence[float]]) -> list[list[str]]:
    """Format values of the feature of each statement, telling the first value apart from the others."""
    pairs = list(zip(statements, values, strict=True))
    numbers = iter(display.format_all_apart([some for each, some in pairs if each.is_number]))
    return [
        next(numbers)
        if each.is_number
        else display.format_dates(some)
        if each.is_date and not each.is_frequency
        else display.format_frequencies(some)
        for each, some in pairs
    ]


def values_and_comparisons(statements: Sequence[Statement]) -> list[tuple[str, str]]:
    """Return the `formatted` value and the `comparison` of each statement."""
    texts = format_values(statements, [each.shown_values for each in statements])
    return [
        (some[0] if each.value == each.value else "", each.compare(some, names))
        for each, some, names in zip(statements, texts, _cluster_names(statements), strict=True)
    ]


def _with_values(shown: Sequence[str], texts: Sequence[str]) -> str:
    """Return clusters with their values: "cluster 3 (31.4)", or "clusters 1 (4.2) and 3 (31.4)"."""
    names = [f"{name} ({text})" for name, text in zip(shown, texts, strict=True)]
    if NOISE in shown:
        return join_words(names)
    return f"cluster{'s' * (len(names) > 1)} {join_words(names)}"


def headlines(
    groups: Sequence[Sequence[Statement]], is_noise: Sequence[bool], rests: Sequence[str]
) -> list[str]:
    """Describe clusters in one line each: "Higher a and b, lower c than cluster 3; higher d than cluster 1".

    Parameters
    ----------
    groups : the statements about each cluster
    is_noise : whether the cluster is noise
    rests : a remark on all other features of the cluster, or ""
    """
    listed = [each for some in groups for each in some]
    items = display.format_items([each.feature for each in listed])
    texts = format_values(listed, [each.shown_values for each in listed])
    phrases = map(Statement.headline, listed, items, texts, _cluster_names(listed))
    return [
        _headline([next(phrases) for _ in some], far, rest)
        for some, far, rest in zip(groups, is_noise, rests, strict=True)
    ]


def _headline(phrases: Sequence[tuple[str, str, str]], is_noise: bool, rest: str) -> str:
    if is_noise:
        names = [name for _, name, _ in phrases]
        return "Far from all clusters" + f", mostly in {join_words(names)}" * bool(names)
    if not phrases:
        return "No feature sets it apart"
    shared: dict[str, dict[str, list[str]]] = {}
    for before, name, after in phrases:
        shared.setdefault(after, {}).setdefault(before, []).append(name)
    parts = []
    for after, words in shared.items():
        named = ", ".join(f"{before} {join_words(some)}".strip() for before, some in words.items())
        parts.append(f"{named} {after}".strip())
    text = "; ".join([*parts, *[rest] * bool(rest)])
    return capitalize(text) if phrases[0][0] else text  # a name keeps its case


def _cluster_names(statements: Sequence[Statement]) -> list[list[str]]:
    """Return the names of the clusters that each statement compares with."""
    names = iter(display.format_items([label for each in statements for label in each.against]))
    return [[next(names) for _ in each.against] for each in statements]
