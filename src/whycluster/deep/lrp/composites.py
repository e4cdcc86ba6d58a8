"""Which rule goes where in a network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from whycluster.core.errors import InvalidInputError
from whycluster.deep.lrp.rules import ZB, Gamma, Rule, check_number

RAISE, GRADIENT = "raise", "gradient"
WINNER, AVERAGE = "winner", "average"


@dataclass(frozen=True)
class Place:
    """A linear operation of a network, for the choice of its rule.

    Attributes
    ----------
    kind : "convolution" or "linear"
    module : the name of the innermost module that computes it, as in ``named_modules()``
    index, count : its number among the linear operations, from 0 on, and how many there are
    block : how many maximum poolings come before it, plus one: in a VGG, its block
    first : whether it works on the input itself
    """

    kind: str
    module: str
    index: int
    count: int
    block: int
    first: bool


Where = str | Callable[[Place], bool]
_GAMMA = Gamma(0.25)


@dataclass(frozen=True)
class Composite:
    """Which rule goes where.

    Parameters
    ----------
    rules : pairs of a place and a rule, the first that fits counts. A place is "first" (works on the input
        itself), "convolution", "linear", a pattern for the names of modules such as "features.1*", or a
        function that is given a `Place` and says whether it fits; a module called "linear" needs that.
    default : the rule for all other places
    max_pool : "winner", the greatest takes all, or "average", shares as of a mean
    sums : the gamma of sums and means of values of both signs, and of LayerNorm, where 0 is plain
        proportion: what nearly cancels would have relevance without bound then. Of values that are all
        positive, shares are in proportion whatever it is
    biases : whether biases take part; what they take is lost, and stands in the residual
    unknown : what to do at an operation without a rule: "raise", or "gradient", which warns and shares by
        the products of inputs and gradient
    """

    rules: Sequence[tuple[Where, Rule]] = ()
    default: Rule = _GAMMA
    max_pool: str = WINNER
    sums: float = 0.1
    biases: bool = False
    unknown: str = RAISE

    def __post_init__(self) -> None:
        check_number(self.sums, "Composite", "sums")
        for name, value, known in (
            ("max_pool", self.max_pool, (WINNER, AVERAGE)),
            ("unknown", self.unknown, (RAISE, GRADIENT)),
            ("biases", self.biases, (False, True)),
        ):
            if value not in known:
                raise InvalidInputError(
                    f"Composite: {name} must be {known[0]!r} or {known[1]!r}; got {value!r}."
                )
        pairs = tuple(self.rules) if isinstance(self.rules, Iterable) else (self.rules,)
        object.__setattr__(self, "rules", pairs)  # what can be gone through only once is read below
        for pair in (*pairs, ("", self.default)):
            if not _is_pair(pair):
                raise InvalidInputError(
                    "Composite: rules must be pairs of a place (a name, a pattern or a function) and a rule, "
                    f"and default a rule; got {pair!r}."
                )

    def check_places(self, places: Sequence[Place], where: str) -> None:
        """Raise for a place that is named, and that the network does not have."""
        for named, _ in self.rules:
            if not isinstance(named, str) or named in ("convolution", "linear"):
                continue
            if any(_fits(named, place) for place in places):
                continue
            names = ", ".join(repr(place.module) for place in places[:8])
            if named == "first":
                raise InvalidInputError(
                    f"{where}: bounds, and rules of the place 'first', are for a convolution or linear layer "
                    "that works on the inputs themselves; in this encoder something else comes first, such "
                    f"as a normalisation. Leave them out, or name the layer: {names}."
                )
            raise InvalidInputError(
                f"{where}: the rules of a Composite must be for places that the encoder has; {named!r} is "
                f"none of its convolutions or linear layers, which are in {names}."
            )

    def rule_at(self, place: Place) -> Rule:
        """The rule for one operation."""
        return next((rule for where, rule in self.rules if _fits(where, place)), self.default)


def _is_pair(pair: Any) -> bool:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        return False
    return (isinstance(pair[0], str) or callable(pair[0])) and isinstance(pair[1], Rule)


def _fits(where: Where, place: Place) -> bool:
    if callable(where):
        return bool(where(place))
    if where == "first":
        return place.first
    return where == place.kind or fnmatchcase(place.module, where)


def _lower(place: Place) -> bool:
    """In the lower half of the network."""
    return 2 * place.index < place.count


_READY: dict[str, Composite] = {
    # The paper's: gamma 0.25 in blocks 1 to 3, 0.1 in blocks 4 and 5.
    "vgg": Composite([(lambda place: place.block <= 3, Gamma(0.25))], Gamma(0.1)),
    "resnet": Composite([(_lower, Gamma(0.25))], Gamma(0.1)),
    "transformer": Composite([("convolution", Gamma(0.25))], Gamma(0.1)),
    "mlp": Composite(),
}
AUTO = "auto"
COMPOSITES = (AUTO, *_READY)


def composite_of(rules: Any, kind: str, where: str = "DeepClustering") -> Composite:
    """A composite from what the user said: a name, one rule for all places, or a composite.

    ``kind`` is the name of the one that suits the network, for "auto".
    """
    if isinstance(rules, Composite):
        return rules
    if isinstance(rules, Rule):
        return Composite(default=rules)
    if isinstance(rules, str) and rules in COMPOSITES:
        return _READY[kind if rules == AUTO else rules]
    raise InvalidInputError(
        f"{where}: rules must be one of {', '.join(map(repr, COMPOSITES))}, a rule such as "
        f"wc.deep.Gamma(0.25), or a wc.deep.Composite; got {rules!r}."
    )


def with_bounds(composite: Composite, bounds: ZB) -> Composite:
    """The same, with zB where the inputs come in."""
    return replace(composite, rules=[("first", bounds), *composite.rules])
