"""An independent check of everything that is said about clusters in words.

This module shares no code with the package. It reads the claims out of the printed text and derives each one
again from the raw table, the clusters of the rows and their relevance.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]\d+)?"
DATE = r"-?\d{4,}-\d\d-\d\d(?: \d\d:\d\d(?::\d\d(?:\.\d+)?)?)?"
PERCENT = r"\d+(?:\.\d+)?%"
VALUE = rf"(?:{DATE}|{PERCENT}|{NUMBER})"
MORE, LESS, AS_OFTEN = "more often true", "less often true", "as often true"
ABOVE = {"higher", "later", "above", "after", MORE, f"{MORE} than in"}
BELOW = {"lower", "earlier", "below", "before", LESS, f"{LESS} than in"}
ORDERS = "|".join(["higher", "lower", "later", "earlier", "same", MORE, LESS, AS_OFTEN])
CAUTION = re.compile(
    rf", though (?:(above|below|after|before) the overall mean|(more|less) often than overall)"
    rf"(?: \((?P<value>{DATE}|{PERCENT}|{NUMBER})\))?$"
)
NOTES = (
    "no frequent category that supports the cluster",
    "no values here",
    "nothing to compare with",
    r"[\d,]+ categories, too many to compare",
)
DAY = 86_400.0


@dataclass
class Facts:
    """What the claims are checked against.

    Attributes
    ----------
    frame : the raw table
    labels : the cluster of each row; noise is "noise"
    relevance : the relevance of each row, as rows of numbers in the order of the columns
    counted : whether the relevance of a row counts, for labels explained through a surrogate; by default all
    contributions : for each cluster and each competitor of its, what the competitor adds to the summed
        relevance of each column; None if the clusters named are not checked
    """

    frame: Any
    labels: Sequence[Any]
    relevance: Sequence[Sequence[float]]
    counted: Sequence[bool] | None = None
    contributions: Mapping[str, Mapping[str, Sequence[float]]] | None = None
    cache: dict[Any, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rows: dict[str, list[int]] = {}
        for row, label in enumerate(self.labels):
            rows.setdefault(str(label), []).append(row)
        self.rows = rows
        self.columns = {str(name): place for place, name in enumerate(self.frame.columns)}
        self.values = [self.frame.iloc[:, place].tolist() for place in range(len(self.columns))]

    def own(self, label: str) -> list[int]:
        return self.rows[label]

    def others(self, label: str) -> list[int]:
        return [row for other, rows in self.rows.items() if other != label for row in rows]

    def mean(self, rows: str | list[int], name: str) -> float:
        """Return the mean of the values that are not missing; dates are seconds since 1970."""
        if isinstance(rows, str):
            return float(self._known(("mean", rows, name), lambda: self.mean(self.own(rows), name)))
        values = [self.values[self.columns[name]][row] for row in rows]
        numbers = [as_number(value) for value in values if not is_missing(value)]
        return math.fsum(numbers) / len(numbers) if numbers else math.nan

    def frequency(self, rows: str | list[int], name: str, category: str | None) -> float:
        """Return the share of the rows that have a category or, if it is None, no value."""
        if isinstance(rows, str):
            key = ("frequency", rows, name, category)
            return float(self._known(key, lambda: self.frequency(self.own(rows), name, category)))
        values = [self.values[self.columns[name]][row] for row in rows]
        if category is None:
            return sum(is_missing(value) for value in values) / len(values)
        found = [not is_missing(value) and shown_category(value) == category for value in values]
        return sum(found) / len(values)

    def own_and_overall(
        self, label: str, name: str, category: str | None, is_frequency: bool
    ) -> tuple[float, float]:
        """Return a mean or frequency in a cluster and in all rows."""

        def find(rows: Any) -> float:
            return self.frequency(rows, name, category) if is_frequency else self.mean(rows, name)

        every = list(range(len(self.labels)))
        overall = self._known(("overall", name, category, is_frequency), lambda: find(every))
        return find(label), float(overall)

    def shares(self, label: str) -> dict[str, float]:
        """Return the share of each feature in the absolute mean relevance of a cluster."""
        return dict(self._known(("shares", label), lambda: self._shares(label)))

    def _shares(self, label: str) -> dict[str, float]:
        rows = [row for row in self.own(label) if self.counted is None or self.counted[row]]
        total = {
            name: math.fsum(float(self.relevance[r][i]) for r in rows) for name, i in self.columns.items()
        }
        size = math.fsum(abs(value) for value in total.values())
        return {name: value / size if size else 0.0 for name, value in total.items()}

    def best_category(self, label: str, name: str) -> str | None:
        """Return the category that adds most to the relevance, of those in a tenth of the rows."""
        place = self.columns[name]
        total: dict[str, list[float]] = {}
        for row in self.own(label):
            value = self.values[place][row]
            if not is_missing(value) and (self.counted is None or self.counted[row]):
                total.setdefault(shown_category(value), []).append(float(self.relevance[row][place]))
        sums = {
            category: math.fsum(parts)
            for category, parts in total.items()
            if self.frequency(label, name, category) >= 0.1
        }
        best = max(sums, key=lambda category: sums[category], default=None)
        return best if best is not None and sums[best] > 0 else None

    def competes(self, label: str, other: str, name: str) -> bool:
        """Return whether a feature sets a cluster apart from another: see `_rivals`."""
        if self.contributions is None or label not in self.contributions:
            return other != label
        return other in self._known(("rivals", label, name), lambda: self._rivals(label, name))

    def _rivals(self, label: str, name: str) -> set[str]:
        """Return the fewest clusters that make up two thirds of the relevance's sign, but at most three."""
        assert self.contributions is not None
        place = self.columns[name]
        rows = [row for row in self.own(label) if self.counted is None or self.counted[row]]
        sign = 1 if math.fsum(float(self.relevance[row][place]) for row in rows) > 0 else -1
        # A mean can be compared only with the mean of values.
        is_number = all(is_numeric(value) for value in self.values[place])
        added = {
            other: max(0.0, sign * float(amounts[place]))
            for other, amounts in self.contributions[label].items()
            if other in self.rows and not (is_number and math.isnan(self.mean(other, name)))
        }
        total = math.fsum(added.values())
        if not total > 1e-9 * math.fsum(abs(float(self.relevance[row][place])) for row in rows):
            return set(added)
        least, so_far = total, 0.0
        for amount in sorted(added.values(), reverse=True)[:3]:
            if so_far < (2 / 3 + 1e-6) * total:
                least = amount
            so_far += amount
        return {other for other, amount in added.items() if amount >= (1 - 1e-6) * least}  # with ties

    def _known(self, key: Any, find: Callable[[], Any]) -> Any:
        if key not in self.cache:
            self.cache[key] = find()
        return self.cache[key]


@dataclass
class Verdict:
    """How many claims were checked, and those that are false."""

    n_claims: int = 0
    false: list[str] = field(default_factory=list)

    def claim(self, holds: bool, text: str) -> None:
        """Count a claim, and keep it if it is false."""
        self.n_claims += 1
        if not holds:
            self.false.append(text)

    def add(self, other: Verdict) -> None:
        """Add the claims of another verdict."""
        self.n_claims += other.n_claims
        self.false += other.false


def is_missing(value: Any) -> bool:
    return (
        value is None or value is pd.NaT or value is pd.NA or (isinstance(value, float) and math.isnan(value))
    )


def is_numeric(value: Any) -> bool:
    return is_missing(value) or isinstance(value, (int, float, pd.Timestamp))


def as_number(value: Any) -> float:
    """Return a value as a number; dates become seconds since 1970."""
    if isinstance(value, pd.Timestamp):
        return float((value - pd.Timestamp("1970-01-01")) / pd.Timedelta(seconds=1))
    return float(value)


def shown_category(value: Any) -> str:
    """Return a category as it is printed in a list of words."""
    text = str(value) if str(value).strip() else repr(str(value))
    return quoted(text)


def quoted(text: str) -> str:
    """Return a name as it is printed in a sentence: quoted if it could be read as several names."""
    return f'"{text}"' if ", " in text or " and " in text else text


def agrees(text: str, value: float, scale: float = 0.0) -> bool:
    """Return whether printed text equals a value to the digits shown."""
    if math.isnan(value):
        return text == ""
    if text.endswith("%"):
        decimals = len(text[:-1].partition(".")[2])
        return abs(float(text[:-1]) - 100 * value) <= 0.5 * 10.0**-decimals + 1e-9
    if re.fullmatch(DATE, text):
        parts = text.count(":")
        step = (DAY, 60.0, 1.0)[parts] if "." not in text else 1e-6
        return abs(as_number(pd.Timestamp(text)) - value) <= step / 2 + 1e-3 * step
    if not re.fullmatch(NUMBER, text):
        return False
    return abs(float(text) - value) <= _half_unit(text) + 1e-9 * max(abs(value), scale)


def _half_unit(text: str) -> float:
    """Return half a unit of the last digit; %g leaves out zeros, so that at least three digits count."""
    mantissa, _, exponent = text.lstrip("-").partition("e")
    digits = mantissa.replace(".", "").lstrip("0")
    if not digits:
        return 0.0
    if "." not in mantissa and not exponent and len(digits) >= 4:
        return 0.5
    first = math.floor(math.log10(abs(float(text))))
    return 0.5 * 10.0 ** (first - max(3, len(digits)) + 1)


def order_of(text: str) -> float:
    """Return printed text as a number, to compare the numbers shown."""
    if text.endswith("%"):
        return float(text[:-1])
    return as_number(pd.Timestamp(text)) if re.fullmatch(DATE, text) else float(text)


class Checker:
    """Reads claims and derives them again; see `Verdict`."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.verdict = Verdict()
        labels = sorted(facts.rows, key=len, reverse=True)
        self.label = "|".join(map(re.escape, labels))
        self.named = {quoted(name): name for name in facts.columns}
        self.name = "|".join(map(re.escape, sorted(self.named, key=len, reverse=True)))

    # Parts of claims

    def number(self, label: str, name: str, text: str, where: str) -> None:
        """Check a mean."""
        value, scale = self.facts.mean(label, name), abs(self.facts.mean(label, name))
        for other in self.facts.rows:
            scale = max(scale, abs(self.facts.mean(other, name)) or 0.0)
        self.verdict.claim(agrees(text, value, scale), f"mean {text} of {name} in {label}: {value} ({where})")

    def frequency(self, label: str, name: str, category: str | None, text: str, where: str) -> None:
        """Check a frequency."""
        value = self.facts.frequency(label, name, category)
        self.verdict.claim(agrees(text, value), f"{text} {category} of {name} in {label}: {value} ({where})")

    def order(self, label: str, name: str, word: str, other: str, where: str) -> None:
        """Check that a mean is above, below or equal to that of another cluster, which competes."""
        own, theirs = self.facts.mean(label, name), self.facts.mean(other, name)
        scale = max(
            abs(self.facts.mean(k, name)) for k in self.facts.rows if not math.isnan(self.facts.mean(k, name))
        )
        if word in ABOVE:
            holds = own > theirs
        elif word in BELOW:
            holds = own < theirs
        else:
            holds = word in ("same", AS_OFTEN) and abs(own - theirs) <= 1e-9 * scale
        holds = holds and self.facts.competes(label, other, name)
        self.verdict.claim(holds, f"{name} of {label} {word} than {other}: {own}, {theirs} ({where})")

    def category(self, label: str, name: str, amount: str, category: str | None, where: str) -> None:
        """Check that a category is the right one, and whether it is most rows."""
        value = self.facts.frequency(label, name, category)
        holds = (value > 0.5) == (amount == "mostly") and (category is None or value >= 0.1)
        if category is not None:
            holds = holds and self.facts.best_category(label, name) == category
        self.verdict.claim(holds, f"{amount} {category} of {name} in {label}: {value} ({where})")

    def more_often(
        self, label: str, name: str, amount: str, category: str | None, other: str, where: str
    ) -> None:
        """Check that a category is compared with a rival, and that it is more frequent, if that is said."""
        own, theirs = self.facts.frequency(label, name, category), self.facts.frequency(other, name, category)
        holds = self.facts.competes(label, other, name) and (own > theirs or amount in ("mostly", "partly"))
        self.verdict.claim(
            holds, f"{category} of {name} {amount} in {label} than in {other}: {own}, {theirs} ({where})"
        )

    def caution(self, label: str, name: str, category: str | None, word: str, text: str, where: str) -> str:
        """Check the remark on the overall value, which must be there if it contradicts; return the rest.

        ``word`` is the word for an order or, for a category or missing values, "more often".
        """
        found, is_frequency = CAUTION.search(text), word == "more often"
        if not is_frequency and word not in ABOVE | BELOW:
            return text
        own, overall = self.facts.own_and_overall(label, name, category, is_frequency)
        is_above = is_frequency or word in ABOVE
        needed = own < overall if is_above else word in BELOW and own > overall
        near = abs(own - overall) <= 1e-9 * max(abs(own), abs(overall))
        self.verdict.claim(bool(found) == needed or near, f"{own}, {overall} overall ({where})")
        if not found:
            return text
        said = found[1] or found[2]
        self.verdict.claim(
            (said in ("above", "after", "more")) == (own > overall), f"{said} overall ({where})"
        )
        if found["value"]:
            self.verdict.claim(
                agrees(found["value"], overall, max(abs(own), abs(overall))), f"overall {overall} ({where})"
            )
        return text[: found.start()]

    def visible(self, text: str, other: str, word: str, where: str) -> None:
        """Check that the numbers shown are in the order that is claimed."""
        if not text or word in ("same", AS_OFTEN):
            return
        holds = order_of(text) > order_of(other) if word in ABOVE else order_of(text) < order_of(other)
        self.verdict.claim(holds, f"{text} does not look {word} than {other} ({where})")

    def unread(self, text: str, where: str) -> None:
        """Count text that cannot be read as a false claim."""
        self.verdict.claim(False, f"cannot read {text!r} ({where})")

    # Lists of clusters

    def valued(self, text: str) -> list[tuple[str, str]] | None:
        """Read "3 (31.4), 4 (2) and 5 (1)"."""
        item = rf"({self.label}) \(({VALUE})\)"
        text = re.sub(r"^clusters? ", "", text)
        if not re.fullmatch(rf"{item}(?:(?:, | and ){item})*", text):
            return None
        return [(found[0], found[1]) for found in re.findall(item, text)]

    def shares_in(self, text: str) -> list[tuple[str, str]] | None:
        """Read "31% in cluster 3 and 12% in cluster 1"."""
        item = rf"({PERCENT}) in (?:cluster )?({self.label})"
        if not re.fullmatch(rf"{item}(?:(?:, | and ){item})*", text):
            return None
        return [(found[1], found[0]) for found in re.findall(item, text)]

    def clusters(self, text: str) -> list[str] | None:
        """Read "clusters 1, 2 and 3"."""
        text = re.sub(r"^clusters? ", "", text)
        if not re.fullmatch(rf"(?:{self.label})(?:(?:, | and )(?:{self.label}))*", text):
            return None
        return re.findall(rf"(?:^|(?<=, )|(?<= and ))(?:{self.label})(?=$|, | and )", text)

    def names(self, text: str) -> list[str] | None:
        """Read "a, b and c"."""
        if not re.fullmatch(rf"(?:{self.name})(?:(?:, | and )(?:{self.name}))*", text):
            return None
        found = re.findall(rf"(?:^|(?<=, )|(?<= and ))(?:{self.name})(?=$|, | and )", text)
        return [self.named[name] for name in found]

    # Claims about one feature

    def comparison(self, label: str, name: str, own: str, text: str, where: str) -> None:
        """Check "higher than 3 (31.4)", given the value that is shown beside it, which may be ""."""
        frequency = re.fullmatch(r"(mostly|more often|partly) (?!true (?:than|as) )(.+?)(?:; (.*))?", text)
        if frequency:
            self.frequencies(label, name, own, frequency, where)
            return
        if any(re.fullmatch(note, text) for note in NOTES):
            self.note(label, name, own, text, where)
            return
        if own:
            self.number(label, name, own, where)
        if text == "far":
            self.verdict.claim(label == "noise", f"{label} is far ({where})")
        elif text:
            self._orders(label, name, own, text, where)

    def note(self, label: str, name: str, own: str, text: str, where: str) -> None:
        """Check why there is nothing to compare."""
        values = [self.facts.values[self.facts.columns[name]][row] for row in self.facts.own(label)]
        known = [value for value in values if not is_missing(value)]
        if text == NOTES[0]:
            holds = bool(known) and self.facts.best_category(label, name) is None
        elif text == NOTES[1]:
            holds = not known
        elif text == NOTES[2]:
            everyone = [v for some in self.facts.rows if some != label for v in self.facts.own(some)]
            holds = not everyone or all(
                math.isnan(self.facts.mean(k, name)) for k in self.facts.rows if k != label
            )
        else:
            holds = int(text.split()[0].replace(",", "")) == len(
                {shown_category(v) for v in self.facts.values[self.facts.columns[name]] if not is_missing(v)}
            )
        self.verdict.claim(holds and (not own or text == NOTES[2]), f"{text} ({where})")

    def _orders(self, label: str, name: str, own: str, text: str, where: str) -> None:
        sides = self._sides(CAUTION.sub("", text))
        if sides is not None and len(sides) == 1:
            self.caution(label, name, None, sides[0][0], text, where)
        if sides is None:
            self.unread(text, where)
        for word, found in sides or []:
            for other, value in found:
                self.order(label, name, word, other, where)
                self.number(other, name, value, where)
                self.visible(own, value, word, where)

    def _sides(self, text: str) -> list[tuple[str, list[tuple[str, str]]]] | None:
        """Read the words of an order and the clusters that they hold against."""
        one = re.fullmatch(rf"({ORDERS}) (?:than|as)(?: in)? (.*)", text)
        two = re.fullmatch(
            rf"(above|after|{MORE} than in) (.*)(?:,| and) (below|before|{LESS} than in) (.*)", text
        )
        pairs = [two.groups()[:2], two.groups()[2:]] if two else [one.groups()] if one else []
        sides = [(word, self.valued(rest)) for word, rest in pairs]
        if not sides or any(found is None for _, found in sides):
            return None
        return [(word, found or []) for word, found in sides]

    def frequencies(self, label: str, name: str, own: str, found: re.Match[str], where: str) -> None:
        """Check "mostly red; 31% in 3 and 12% in 1"."""
        amount, category, rest = found.groups()
        what = None if category == "missing" and self.facts.frequency(label, name, None) > 0 else category
        self.category(label, name, amount, what, where)
        if own:
            self.frequency(label, name, what, own, where)
        # Only if it is more frequent than in all clusters named does the order have to hold overall.
        others = self.shares_in(CAUTION.sub("", rest)) if rest else []
        if others is None:
            self.unread(rest, where)
            return
        is_more = bool(others) and all(
            self.facts.frequency(label, name, what) > self.facts.frequency(other, name, what)
            for other, _ in others
        )
        if is_more:
            self.caution(label, name, what, "more often", rest, where)
        self.verdict.claim(amount != "partly" or not is_more, f"partly, but more often ({where})")
        for other, value in others:
            self.more_often(label, name, amount, what, other, where)
            self.frequency(other, name, what, value, where)
            if is_more:
                self.visible(own, value, "higher", where)

    # Documents of claims

    def statement(self, label: str, text: str) -> None:
        """Check the text of one statement."""
        where = f"statement on {label}: {text}"
        often = "(?:mostly|more often|partly)"
        patterns = [
            (rf"({self.name}) is ({ORDERS}) \((?:mean )?({VALUE})\) (?:than|as) in (.*)", "{1} than {3}", 2),
            (rf"({self.name}) has the (same) mean \(({VALUE})\) as in (.*)", "{1} as in {3}", 2),
            (rf"({self.name}) \((?:mean )?({VALUE})\) is (.*)", "{2}", 1),
            (
                rf"({self.name}) is ({often} .+?) \(({PERCENT}), against (.*?)\)(, though .*)?",
                "{1}; {3}{4}",
                2,
            ),
            (rf"({self.name}) is ({often} .+?) \(({PERCENT})\)", "{1}", 2),
        ]
        for pattern, form, own in patterns:
            found = re.fullmatch(pattern, text)
            if found:
                parts = [part or "" for part in found.groups()]
                self.comparison(label, self.named[parts[0]], parts[own], form.format(*parts), where)
                return
        if re.fullmatch(rf"(?:{self.name}) is far from the clusters", text):
            self.verdict.claim(label == "noise", where)
            return
        noted = re.fullmatch(rf"({self.name}) has ({'|'.join(NOTES)})", text)
        if noted:
            self.note(label, self.named[noted[1]], "", noted[2], where)
        else:
            self.unread(text, where)

    def sentence(self, label: str, text: str) -> None:
        """Check the sentence on a cluster."""
        where = f"sentence on {label}: {text}"
        if not text.endswith("."):
            self.unread(text, where)
            return
        text = text[:-1]
        far = re.fullmatch(r"Far from all clusters(?:, mostly in (.*))?", text)
        if far:
            self.verdict.claim(label == "noise", where)
            self._speak_for(label, far[1] or "", where)
        elif text == "No feature sets it apart":
            self.verdict.claim(max(self.facts.shares(label).values()) <= 1e-12, where)
        else:
            parts = text.split("; ")
            if parts[-1] in ("no other feature adds to its relevance", "all other features add under 1%"):
                ranked = sorted(self.facts.shares(label).values(), reverse=True)
                left = math.fsum(share for share in ranked[1:] if share > 0)
                is_none = left <= 1e-9
                holds = ranked[0] > 0 and left < 0.01 and is_none == parts.pop().startswith("no other")
                self.verdict.claim(holds, f"{left} ({where})")
            for part in parts:
                self._part(label, part, where)

    def _speak_for(self, label: str, text: str, where: str) -> list[str]:
        """Check that features speak for a cluster, and return them."""
        names = self.names(text) if text else []
        if names is None:
            self.unread(text, where)
            return []
        for name in names:
            self.verdict.claim(self.facts.shares(label)[name] > 0, f"{name} speaks for {label} ({where})")
        return names

    def _part(self, label: str, text: str, where: str) -> None:
        item = (
            rf"({self.name}) ((?:mostly|more often|partly) [^()]+?) \(({PERCENT})(?:, against ([^()]*))?\)"
            rf"(, though (?:more|less) often than overall \({PERCENT}\))?"
        )
        for found in re.finditer(item, text):
            name, words, own, others, caution = found.groups()
            self._speak_for(label, name, where)
            said = f"{words}; {others}{caution or ''}" if others else words
            self.comparison(label, self.named[name], own, said, where)
        rest = re.sub(r"^(?:, | and )+|(?:, | and )+$", "", re.sub(item, "", text))
        if not rest:
            return
        alone = re.fullmatch(r"[Ss]et apart by (.*)", rest)
        if alone:
            self._speak_for(label, alone[1], where)
            return
        self._ordered(label, rest, where)

    def _ordered(self, label: str, text: str, where: str) -> None:
        """Check "higher a and b, lower c than clusters 3 and 4" and the like."""
        claims = _claims(CAUTION.sub("", text))
        if not claims:
            self.unread(text, where)
        for names, word, clusters in claims:
            others = self.clusters(clusters)
            if others is None:
                self.unread(clusters, where)
            for name in self._speak_for(label, names, where):
                if word in ("higher", "lower", "later", "earlier", MORE, LESS):
                    self.caution(label, name, None, word, text, where)
                for other in others or []:
                    self.order(label, name, word, other, where)

    def size(self, label: str, text: str, where: str) -> None:
        """Check the size of a cluster."""
        n = len(self.facts.rows.get(label, []))
        self.verdict.claim(int(text.replace(",", "")) == n, f"{text} rows in {label}: {n} ({where})")

    def share(self, label: str, name: str, text: str, where: str) -> None:
        """Check the share of a feature."""
        value = self.facts.shares(label)[name]
        sign = -1 if text[0] in "-\u2212" else 1
        self.verdict.claim(
            agrees(text.lstrip("+-\u2212"), sign * value),
            f"share {text} of {name} in {label}: {value} ({where})",
        )

    def table(self, text: str) -> None:
        """Check the table of a summary."""
        lines = text.split("\n")
        start = next(
            i for i, line in enumerate(lines) if line.startswith("cluster  ") and "compared with" in line
        )
        spans = [found.span() for found in re.finditer(r"-+", lines[start + 1])]
        label = ""
        for line in lines[start + 2 :]:
            if not line.strip():
                break
            cells = [line[a : b if i < 6 else None].strip() for i, (a, b) in enumerate(spans)]
            if cells[0]:
                label = cells[0]
                self.size(label, cells[1], line)
            name = cells[2]
            self.share(label, name, cells[3], line)
            if cells[6].endswith("..."):
                continue  # cut off
            self.comparison(label, name, cells[5], cells[6], line)

    def command(self, text: str) -> None:
        """Check the output of `explain` or `compare`."""
        for label, size, sentence in re.findall(rf"(?m)^({self.label}) \((\d+) rows?\): (.*)$", text):
            self.size(label, size, sentence)
            self.sentence(label, sentence)
        pair = re.search(rf"(?m)^\d[\d,]* rows?, (\d+) in ({self.label}) and (\d+) in ({self.label});", text)
        if pair:
            self.size(pair[2], pair[1], "compare")
            self.size(pair[4], pair[3], "compare")
        self.table(text)

    def report(self, page: str) -> None:
        """Check the clusters of a report."""
        total = len(self.facts.labels)
        for card in re.findall(r'(?s)<article class="card".*?</article>', page):
            (heading,) = re.findall(r"(?s)<h3[^>]*>.*?<bdi>(.*?)</bdi></h3>", card)
            label = re.sub(r"^Cluster ", "", plain(heading)) if plain(heading) != "Noise" else "noise"
            for sentence in re.findall(r'(?s)<p class="sentence">(.*?)</p>', card):
                self.sentence(label, plain(sentence))
            size, share = re.findall(
                r'<dd>([\d,]+) <span class="dim">((?:under |over )?\d+%)</span></dd>', card
            )[0]
            self.size(label, size, "report")
            part = len(self.facts.own(label)) / total
            holds = part < 0.005 if "under" in share else part > 0.995 if "over" in share else None
            self.verdict.claim(agrees(share, part) if holds is None else holds, f"{share} of rows in {label}")
            for row in re.findall(r'(?s)<tr><th scope="row">(.*?)</tr>', card):
                self._report_line(label, row)

    def _report_line(self, label: str, row: str) -> None:
        name = plain(re.findall(r"(?s)^<bdi>(.*?)</bdi>", row)[0])
        words = re.findall(r'(?s)<span class="direction"><bdi>(.*?)</bdi></span>', row)
        share, inside, outside = (
            plain(cell) for cell in re.findall(r'(?s)<td class="number">(.*?)</td>', row)
        )
        comparison = plain(words[0]) if words else ""
        where = f"report on {label}: {name} {comparison}"
        self.share(label, name, share, where)
        self.comparison(label, name, inside, comparison, where)
        others = self.facts.others(label)
        if outside:
            amount = re.match(r"(?:mostly|more often|partly) (?!true than)(.+?)(?:;|$)", comparison)
            category = amount[1] if amount else None
            missing = category == "missing" and self.facts.frequency(label, name, None) > 0
            value = (
                self.facts.frequency(others, name, None if missing else category)
                if amount
                else self.facts.mean(others, name)
            )
            self.verdict.claim(agrees(outside, value, abs(value)), f"{outside} outside: {value} ({where})")
        for category, first, second in re.findall(r'<li title="(.*?): (\d+)% inside, (\d+)% outside">', row):
            shown = quoted(plain(category))
            if any(
                shown_category(v) == shown
                for v in self.facts.values[self.facts.columns[name]]
                if not is_missing(v)
            ):
                self.frequency(label, name, shown, f"{first}%", where)
                value = self.facts.frequency(others, name, shown)
                self.verdict.claim(
                    agrees(f"{second}%", value), f"{second}% {shown} outside: {value} ({where})"
                )


def _claims(text: str) -> list[tuple[str, str, str]]:
    """Read the names, the word and the clusters of each order in a part of a sentence."""
    sides = re.fullmatch(
        rf"(.*?) (above|after|{MORE} than in) (.*?) and (below|before|{LESS} than in) (.*)", text
    )
    if sides:
        return [(sides[1], sides[2], sides[3]), (sides[1], sides[4], sides[5])]
    often = re.fullmatch(rf"(.*?) ({MORE}|{LESS}|{AS_OFTEN}) (?:than|as) in (.*)", text)
    if often:
        return [(often[1], often[2], often[3])]
    words = re.fullmatch(r"([Hh]igher|[Ll]ower) (.*) than (.*)", text)
    if words:
        groups = re.split(r"(?:^|, )([Hh]igher|[Ll]ower) ", f"{words[1]} {words[2]}")[1:]
        return [(some, word.lower(), words[3]) for word, some in zip(groups[::2], groups[1::2], strict=True)]
    same = re.fullmatch(r"[Ss]ame mean of (.*) as (.*)", text)
    if same:
        return [(same[1], "same", same[2])]
    dates = re.fullmatch(r"(.*?) (earlier|later) than (.*)", text)
    return [(dates[1], dates[2], dates[3])] if dates else []


def plain(markup: str) -> str:
    """Return the text of markup."""
    return html.unescape(re.sub(r"<[^>]*>", "", markup)).strip()


def check(facts: Facts, **texts: Any) -> Verdict:
    """Check texts: ``summaries``, ``sentences``, ``statements``, ``commands`` and ``reports``.

    Sentences and statements are pairs of a label and a text.
    """
    checker = Checker(facts)
    for text in texts.get("summaries", ()):
        checker.table(text)
    for label, text in texts.get("sentences", ()):
        checker.sentence(str(label), text)
    for label, text in texts.get("statements", ()):
        checker.statement(str(label), text)
    for text in texts.get("commands", ()):
        checker.command(text)
    for page in texts.get("reports", ()):
        checker.report(page)
    return checker.verdict
