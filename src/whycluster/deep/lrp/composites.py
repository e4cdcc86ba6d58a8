"""Composites, which determine the rule for each layer of a network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from whycluster.core.errors import InvalidInputError
from whycluster.deep.lrp.rules import Epsilon, Gamma, Rule, ZBox, check_number

RAISE, GRADIENT = "raise", "gradient"
WINNER, AVERAGE = "winner", "average"


@dataclass(frozen=True)
class Layer:
    """A linear operation of a network, with the properties by which a composite chooses a rule.

    Attributes
    ----------
    kind : "convolution" or "linear"
    module : the name of the innermost module that runs the operation, as in ``named_modules()``
    index, count : the position of the operation among all linear operations, from 0, and the number of all
        linear operations
    block : one plus the number of earlier max-pooling operations, which is the block number in a VGG
    first : whether the operation takes the input of the network directly
    """

    kind: str
    module: str
    index: int
    count: int
    block: int
    first: bool


Selector = str | Callable[[Layer], bool]
_GAMMA = Gamma(0.25)


@dataclass(frozen=True)
class Composite:
    """A choice of rules for all operations of a network.

    Parameters
    ----------
    rules : pairs of a selector and a rule; the first match applies. A selector is "first" (the layer that
        operates on the input), "convolution", "linear", a pattern for module names such as "features.1*", or
        a function that takes a `Layer` and returns whether it matches. To select a module that is itself
        named "linear", use a function.
    default : the rule for all other layers
    max_pool : "winner" passes all relevance to the maximum; "average" distributes it as average pooling does
    sums : the gamma for LayerNorm and for sums and means of values of both signs. With 0, shares are strictly
        proportional, and terms that nearly cancel may receive unbounded relevance. If all values are
        positive, shares are proportional for any gamma.
    biases : whether biases receive relevance, which is then lost and appears in the residual
    unknown : how to treat an operation without a rule: "raise" raises an error; "gradient" issues a warning
        and distributes relevance in proportion to input times gradient
    """

    rules: Sequence[tuple[Selector, Rule]] = ()
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
        object.__setattr__(self, "rules", pairs)  # stored before the loop, which would exhaust an iterator
        for pair in (*pairs, ("", self.default)):
            if not _is_pair(pair):
                raise InvalidInputError(
                    "Composite: rules must be pairs of a selector (a name, a pattern or a function) and a "
                    f"rule, and default must be a rule; got {pair!r}."
                )

    def check_layers(self, layers: Sequence[Layer], where: str) -> None:
        """Raise an error if a selector names a layer that the network does not have."""
        for selector, _ in self.rules:
            if not isinstance(selector, str) or selector in ("convolution", "linear"):
                continue
            if any(_matches(selector, layer) for layer in layers):
                continue
            names = ", ".join(repr(layer.module) for layer in layers[:8])
            if selector == "first":
                raise InvalidInputError(
                    f"{where}: bounds, and rules for the layer 'first', need a convolution or linear layer "
                    "that operates directly on the inputs; in this encoder, another operation, such as a "
                    "normalization, comes first. Leave them out, or name one of these layers instead: "
                    f"{names}."
                )
            raise InvalidInputError(
                f"{where}: the rules of a Composite must match layers of the encoder; {selector!r} matches "
                f"none of its convolutions and linear layers, which are in the modules {names}."
            )

    def rule_for(self, layer: Layer) -> Rule:
        """Return the rule for one layer."""
        return next((rule for selector, rule in self.rules if _matches(selector, layer)), self.default)


def _is_pair(pair: Any) -> bool:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        return False
    return (isinstance(pair[0], str) or callable(pair[0])) and isinstance(pair[1], Rule)


def _matches(selector: Selector, layer: Layer) -> bool:
    if callable(selector):
        return bool(selector(layer))
    if selector == "first":
        return layer.first
    return selector == layer.kind or fnmatchcase(layer.module, selector)


def _in_lower_half(layer: Layer) -> bool:
    return 2 * layer.index < layer.count


_PRESETS: dict[str, Composite] = {
    # As in the paper, gamma is 0.25 in blocks 1 to 3 and 0.1 in blocks 4 and 5.
    "vgg": Composite([(lambda layer: layer.block <= 3, Gamma(0.25))], Gamma(0.1)),
    "resnet": Composite([(_in_lower_half, Gamma(0.25))], Gamma(0.1)),
    "transformer": Composite([("convolution", Gamma(0.25))], Gamma(0.1)),
    "mlp": Composite(),
    # Without the biases, contributions that nearly cancel would get unbounded relevance.
    "text": Composite(default=Epsilon(1e-6), sums=0.0, biases=True),
}
AUTO = "auto"
COMPOSITES = (AUTO, *_PRESETS)


def composite_of(rules: Any, kind: str, where: str = "DeepClustering") -> Composite:
    """Return the composite for a name, a single rule or a composite.

    Parameters
    ----------
    rules : the rules as given by the user
    kind : the name of the preset that "auto" selects for the network
    where : the public function that was called, for messages
    """
    if isinstance(rules, Composite):
        return rules
    if isinstance(rules, Rule):
        return Composite(default=rules)
    if isinstance(rules, str) and rules in COMPOSITES:
        return _PRESETS[kind if rules == AUTO else rules]
    raise InvalidInputError(
        f"{where}: rules must be one of {', '.join(map(repr, COMPOSITES))}, a rule such as "
        f"wc.deep.Gamma(0.25), or a wc.deep.Composite; got {rules!r}."
    )


def with_bounds(composite: Composite, bounds: ZBox) -> Composite:
    """Return the composite with the zB rule for the layer that operates on the input."""
    return replace(composite, rules=[("first", bounds), *composite.rules])
