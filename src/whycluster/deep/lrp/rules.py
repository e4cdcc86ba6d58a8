"""Rules of LRP: how the relevance of the outputs of a linear operation is shared among its inputs.

An input a_i brings c_ij = a_i w_ij to output j. A rule makes shares of these contributions, and

    R_i = sum_j c'_ij R_j / sum_i c'_ij .

With |c_ij| = |a_i| |w_ij|, sums over the positive contributions alone are (z + T) / 2, where z_j = sum_i c_ij
and T_j = sum_i |c_ij|; so gamma and z+ take two products with weights forth and two back, whatever the signs
of the inputs. Biases take no relevance unless they are asked to.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from whycluster.core.errors import InvalidInputError
from whycluster.data.arrays import is_real

Tensor = torch.Tensor

# A sum of sizes below this is 0, and nothing goes through it; relevance over it must not overflow.
_NOTHING = {torch.float32: 1e-20, torch.float64: 1e-200}
_ROUNDING = 64  # a difference of two sums that is within so many roundings of them is 0


@dataclass(frozen=True, eq=False)
class LinearMap(ABC):
    """y = a w + b, as one operation of a network computes it.

    Attributes
    ----------
    a : its input, in the dtype of the relevance
    weight : w
    positive : whether no value of a is negative
    bias : b, of a shape that can be added to y; None for no bias
    """

    a: Tensor
    weight: Tensor
    bias: Tensor | None
    positive: bool

    @property
    def sizes(self) -> Tensor:
        """|a|, which is a itself where no value is negative."""
        return self.a if self.positive else self.a.abs()

    @property
    def ones(self) -> Tensor:
        """Inputs of 1, of one row if all rows are treated alike."""
        return torch.ones_like(self.a[:1])

    @abstractmethod
    def forth(self, a: Tensor, weight: Tensor) -> Tensor:
        """The product a w, without the bias."""

    @abstractmethod
    def back(self, s: Tensor, weight: Tensor) -> Tensor:
        """The product s w^T, of the shape of a."""


@dataclass(frozen=True)
class Rule(ABC):
    """How relevance is shared among the inputs of a linear operation."""

    @abstractmethod
    def share(self, linear: LinearMap, relevance: Tensor, z: Tensor | None, biases: bool) -> Tensor:
        """The relevance of the inputs.

        Parameters
        ----------
        linear : the operation
        relevance : that of its outputs
        z : its outputs, without the bias, if they are at hand; they need only be right where there is
            relevance
        biases : whether the bias is one more contribution, whose share is lost
        """


@dataclass(frozen=True)
class Gamma(Rule):
    """LRP-gamma: contributions of the sign of the output count 1 + gamma times.

    For inputs of no negative value and a positive output this is the rule of weights w + gamma max(0, w). For
    others it is generalised: c + gamma max(0, c) where the output is positive, c + gamma min(0, c) where it
    is negative. No denominator comes near 0 then, however the contributions cancel.

    Parameters
    ----------
    gamma : from 0 on, where all contributions count alike
    """

    gamma: float = 0.25

    def __post_init__(self) -> None:
        check_number(self.gamma, "Gamma", "gamma")

    def share(self, linear: LinearMap, relevance: Tensor, z: Tensor | None, biases: bool) -> Tensor:
        """R_i = (1 + g/2) a w^T (sign(z) u) + g/2 |a| |w|^T u, with u = R / ((1 + g/2) |z| + g/2 T)."""
        half = self.gamma / 2
        if z is None:
            z = linear.forth(linear.a, linear.weight)
        sizes, weight = linear.sizes, linear.weight.abs().mul_(half)
        total = linear.forth(sizes, weight)
        if biases and linear.bias is not None:
            z, total = z + linear.bias, total + half * linear.bias.abs()
        u, s = parts(relevance, z, total, half)
        del z, total
        shares = linear.back(s, (1 + half) * linear.weight)
        del s
        sizeable = linear.back(u, weight)
        del u
        if sizes is linear.a:
            return shares.add_(sizeable).mul_(sizes)
        return shares.mul_(linear.a).add_(sizeable.mul_(sizes))


@dataclass(frozen=True)
class Epsilon(Rule):
    """LRP-epsilon: all contributions count alike, and epsilon takes what they nearly cancel in.

    Parameters
    ----------
    epsilon : added to the size of every output; what it takes is lost, so that larger ones give less noise
    """

    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        check_number(self.epsilon, "Epsilon", "epsilon")

    def share(self, linear: LinearMap, relevance: Tensor, z: Tensor | None, biases: bool) -> Tensor:
        """R_i = a w^T s, s = R / (z + epsilon sign(z))."""
        if z is None:
            z = linear.forth(linear.a, linear.weight)
        if biases and linear.bias is not None:
            z = z + linear.bias
        s = ratio(relevance, z + torch.full_like(z, self.epsilon).copysign_(z))
        return linear.back(s, linear.weight).mul_(linear.a)


@dataclass(frozen=True)
class ZPlus(Rule):
    """LRP-z+: positive contributions only; the limit of gamma without end for positive outputs."""

    def share(self, linear: LinearMap, relevance: Tensor, z: Tensor | None, biases: bool) -> Tensor:
        """R_i = (a w^T s + |a| |w|^T s) / 2, s = R / ((z + T) / 2)."""
        if z is None:
            z = linear.forth(linear.a, linear.weight)
        sizes, weight = linear.sizes, linear.weight.abs()
        sum_of_sizes = linear.forth(sizes, weight)
        total = sum_of_sizes + z
        # Where no contribution is positive, rounding leaves something, and would share out all relevance.
        total.masked_fill_(total <= _ROUNDING * torch.finfo(total.dtype).eps * sum_of_sizes, 0.0)
        if biases and linear.bias is not None:
            total += 2 * linear.bias.clamp(min=0)
        s = ratio(relevance, total)
        shares = linear.back(s, linear.weight).mul_(linear.a)
        return shares.add_(linear.back(s, weight).mul_(sizes))


@dataclass(frozen=True, eq=False)
class ZB(Rule):
    """LRP-zB for pixels: what an input brings beyond the least that it could, in its bounds.

    Parameters
    ----------
    low, high : the least and the greatest value that inputs can have: a number, one for each channel, or an
        array of the shape of one input
    """

    low: Any
    high: Any
    _bounds: tuple[Tensor, Tensor] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        try:
            low, high = (_doubles(x) for x in (self.low, self.high))
            fits = bool((torch.isfinite(low) & torch.isfinite(high) & (low <= high)).all())
        except (TypeError, ValueError, RuntimeError):  # no numbers; numbers of shapes that differ
            fits = False
        if not fits:
            raise InvalidInputError(
                "ZB: low and high must be finite numbers, as many of the one as of the other, and low no "
                f"greater than high; got {self.low!r} and {self.high!r}."
            )
        object.__setattr__(self, "_bounds", (low, high))

    def spread(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Both bounds, for one input of this batch; channels come second in it."""
        shape = tuple(like.shape[1:])
        spread = []
        for x in self._bounds:
            channels = x.ndim == 1 and len(shape) > 1
            placed = x.reshape(-1, *[1] * (len(shape) - 1)) if channels else x
            if x.numel() == math.prod(shape):  # inputs that are flattened first
                placed = x.reshape(shape)
            elif x.ndim == 2 and len(shape) == 1 and len(like) % len(x) == 0:  # several rows for each input
                spread.append(x.to(like).repeat(len(like) // len(x), 1))
                continue
            try:
                spread.append(placed.to(like).expand(1, *shape))
            except RuntimeError:
                raise InvalidInputError(
                    f"ZB: low and high must be numbers, one for each channel, or of the shape {shape} of one "
                    f"input; got shape {tuple(x.shape)}."
                ) from None
        return spread[0], spread[1]

    def share(self, linear: LinearMap, relevance: Tensor, z: Tensor | None, biases: bool) -> Tensor:
        """R_i = a w^T s - low max(0, w)^T s - high min(0, w)^T s."""
        if z is None:
            z = linear.forth(linear.a, linear.weight)
        low, high = self.spread(linear.a)
        positive, negative = linear.weight.clamp(min=0), linear.weight.clamp(max=0)
        z = z - linear.forth(low, positive) - linear.forth(high, negative)
        if biases and linear.bias is not None:
            z = z + linear.bias
        s = ratio(relevance, z)
        shares = linear.back(s, linear.weight).mul_(linear.a)
        shares -= linear.back(s, positive).mul_(low)
        shares -= linear.back(s, negative).mul_(high)
        return shares


@dataclass(frozen=True)
class WSquared(Rule):
    """LRP-w^2: shares by the squares of the weights, whatever the inputs."""

    def share(self, linear: LinearMap, relevance: Tensor, z: Tensor | None, biases: bool) -> Tensor:  # noqa: ARG002  # inputs do not matter
        """R_i = w^2^T s, s = R / (1 w^2)."""
        return _by_weights(linear, relevance, linear.weight.square())


@dataclass(frozen=True)
class Flat(Rule):
    """LRP-flat: equal shares of all inputs that an output is made of."""

    def share(self, linear: LinearMap, relevance: Tensor, z: Tensor | None, biases: bool) -> Tensor:  # noqa: ARG002  # inputs do not matter
        """R_i = 1^T s, s = R / (1 1)."""
        return _by_weights(linear, relevance, torch.ones_like(linear.weight))


def _doubles(values: Any) -> Tensor:
    if isinstance(values, torch.Tensor):
        return values.detach().cpu().double()
    return torch.as_tensor(np.asarray(values, dtype=np.float64))


def _by_weights(linear: LinearMap, relevance: Tensor, weight: Tensor) -> Tensor:
    return linear.back(ratio(relevance, linear.forth(linear.ones, weight)), weight)


def parts(relevance: Tensor, z: Tensor, total: Tensor, half: float) -> tuple[Tensor, Tensor]:
    """Find u = R / ((1 + g/2) |z| + g/2 T), and u with the sign of z; ``total``, g/2 T, is overwritten.

    Few steps, and in place: on large images they cost as much as products with weights.
    """
    if half == 0:  # contributions may cancel, and then nothing goes through
        u = ratio(relevance, z.abs())
        return u, torch.where(z < 0, -u, u)
    signed = total.clamp_(min=_NOTHING[total.dtype]).copysign_(z).add_(z, alpha=1 + half)
    s = relevance / signed
    return torch.div(relevance, signed.abs_(), out=signed), s


def is_nothing(sizes: Tensor) -> Tensor:
    """Where a sum of sizes is 0, or as good as."""
    return sizes < _NOTHING[sizes.dtype]


def ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Numerator over denominator, 0 where the latter is 0."""
    nothing = denominator == 0
    return (numerator / denominator.masked_fill(nothing, 1.0)).masked_fill_(nothing, 0.0)


def check_number(value: Any, where: str, name: str) -> None:
    """Raise unless it is a number from 0 on."""
    if not is_real(value) or not 0 <= value < float("inf"):
        raise InvalidInputError(f"{where}: {name} must be a number from 0 on; got {value!r}.")
