"""LRP rules, which distribute the relevance of a linear operation's outputs among its inputs.

Input a_i contributes c_ij = a_i w_ij to output j. A rule replaces these contributions with modified
contributions c'_ij and distributes relevance in proportion to them:

    R_i = sum_j c'_ij R_j / sum_i c'_ij .

With z_j = sum_i c_ij and T_j = sum_i |c_ij|, where |c_ij| = |a_i| |w_ij|, the sum of the positive
contributions is (z + T) / 2. The gamma and z+ rules therefore need only two products with weights forward and
two backward, regardless of the signs of the inputs. Biases receive relevance only if the composite allows it.

References
----------
S. Bach et al., On pixel-wise explanations for non-linear classifier decisions by layer-wise relevance
propagation, PLoS ONE 2015. G. Montavon et al., Layer-wise relevance propagation: an overview, 2019.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from whycluster.core.errors import InvalidInputError

Tensor = torch.Tensor

# Sums of absolute values below this limit count as 0 and pass no relevance on, since dividing by them could
# overflow.
_NEGLIGIBLE = {torch.float32: 1e-20, torch.float64: 1e-200}
_ROUNDING = 64  # a difference of two sums counts as 0 if it is within this many rounding errors


@dataclass(frozen=True, eq=False)
class LinearOperation(ABC):
    """One linear operation of a network, y = a w + b, with its input.

    Attributes
    ----------
    a : the input, in the dtype of the relevance
    weight : w
    bias : b, in a shape that broadcasts to y, or None if there is no bias
    positive : whether ``a`` is known to have no negative values
    """

    a: Tensor
    weight: Tensor
    bias: Tensor | None
    positive: bool

    @property
    def magnitudes(self) -> Tensor:
        """|a|, without a copy if no value is negative."""
        return self.a if self.positive else self.a.abs()

    @property
    def ones(self) -> Tensor:
        """An input of ones, with a single row if the operation treats all rows alike."""
        return torch.ones_like(self.a[:1])

    @abstractmethod
    def forward(self, a: Tensor, weight: Tensor) -> Tensor:
        """Return a w, without the bias."""

    @abstractmethod
    def adjoint(self, s: Tensor, weight: Tensor) -> Tensor:
        """Return s w^T, in the shape of ``a``."""


@dataclass(frozen=True)
class Rule(ABC):
    """A rule that distributes relevance among the inputs of a linear operation."""

    @abstractmethod
    def propagate(self, linear: LinearOperation, relevance: Tensor, z: Tensor | None, biases: bool) -> Tensor:
        """Return the relevance of the inputs.

        Parameters
        ----------
        linear : the operation
        relevance : the relevance of its outputs
        z : its outputs without the bias, or None if they are not known; they need to be correct only where
            there is relevance
        biases : whether the bias counts as one more contribution, whose share is lost
        """


@dataclass(frozen=True)
class Gamma(Rule):
    """The LRP-gamma rule: contributions of the same sign as the output are multiplied by 1 + gamma.

    For non-negative inputs and a positive output, this is the usual rule with weights w + gamma max(0, w).
    The generalization uses c + gamma max(0, c) for a positive output and c + gamma min(0, c) for a negative
    output. No denominator gets close to 0, even if contributions cancel.

    Parameters
    ----------
    gamma : a nonnegative number; with 0, all contributions stay unchanged
    """

    gamma: float = 0.25

    def __post_init__(self) -> None:
        check_number(self.gamma, "Gamma", "gamma")

    def propagate(self, linear: LinearOperation, relevance: Tensor, z: Tensor | None, biases: bool) -> Tensor:
        """R_i = (1 + g/2) a w^T (sign(z) u) + g/2 |a| |w|^T u, with u = R / ((1 + g/2) |z| + g/2 T)."""
        half = self.gamma / 2
        if z is None:
            z = linear.forward(linear.a, linear.weight)
        magnitudes, weight = linear.magnitudes, linear.weight.abs().mul_(half)
        total = linear.forward(magnitudes, weight)
        if biases and linear.bias is not None:
            z, total = z + linear.bias, total + half * linear.bias.abs()
        u, s = gamma_ratios(relevance, z, total, half)
        del z, total
        signed = linear.adjoint(s, (1 + half) * linear.weight)
        del s
        unsigned = linear.adjoint(u, weight)
        del u
        if magnitudes is linear.a:
            return signed.add_(unsigned).mul_(magnitudes)
        return signed.mul_(linear.a).add_(unsigned.mul_(magnitudes))


@dataclass(frozen=True)
class Epsilon(Rule):
    """The LRP-epsilon rule.

    All contributions stay unchanged, and epsilon absorbs relevance where contributions nearly cancel.

    Parameters
    ----------
    epsilon : added to the absolute value of every output. The relevance that it absorbs is lost. Larger
        values reduce noise.
    """

    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        check_number(self.epsilon, "Epsilon", "epsilon")

    def propagate(self, linear: LinearOperation, relevance: Tensor, z: Tensor | None, biases: bool) -> Tensor:
        """R_i = a w^T s, s = R / (z + epsilon sign(z))."""
        if z is None:
            z = linear.forward(linear.a, linear.weight)
        if biases and linear.bias is not None:
            z = z + linear.bias
        s = safe_divide(relevance, z + torch.full_like(z, self.epsilon).copysign_(z))
        return linear.adjoint(s, linear.weight).mul_(linear.a)


@dataclass(frozen=True)
class ZPlus(Rule):
    """The LRP-z+ rule, which uses only positive contributions.

    For positive outputs, it is the limit of LRP-gamma as gamma tends to infinity.
    """

    def propagate(self, linear: LinearOperation, relevance: Tensor, z: Tensor | None, biases: bool) -> Tensor:
        """R_i = (a w^T s + |a| |w|^T s) / 2, s = R / ((z + T) / 2)."""
        if z is None:
            z = linear.forward(linear.a, linear.weight)
        magnitudes, weight = linear.magnitudes, linear.weight.abs()
        absolute_sum = linear.forward(magnitudes, weight)
        total = absolute_sum + z
        # Without positive contributions, rounding would leave a remainder that receives all the relevance.
        total.masked_fill_(total <= _ROUNDING * torch.finfo(total.dtype).eps * absolute_sum, 0.0)
        if biases and linear.bias is not None:
            total += 2 * linear.bias.clamp(min=0)
        s = safe_divide(relevance, total)
        result = linear.adjoint(s, linear.weight).mul_(linear.a)
        return result.add_(linear.adjoint(s, weight).mul_(magnitudes))


@dataclass(frozen=True, eq=False)
class ZBox(Rule):
    """The LRP-zB rule for pixels: contributions are relative to the smallest ones that the bounds allow.

    Parameters
    ----------
    low, high : the smallest and largest possible input value, each a number, one number per channel, or an
        array in the shape of one input
    """

    low: Any
    high: Any
    _bounds: tuple[Tensor, Tensor] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        try:
            low, high = (_to_double(x) for x in (self.low, self.high))
            valid = bool((torch.isfinite(low) & torch.isfinite(high) & (low <= high)).all())
        except (TypeError, ValueError, RuntimeError):  # not numbers, or shapes that do not broadcast
            valid = False
        if not valid:
            raise InvalidInputError(
                "ZBox: low and high must be finite numbers or arrays of the same shape, with low no greater "
                f"than high; got {self.low!r} and {self.high!r}."
            )
        object.__setattr__(self, "_bounds", (low, high))

    def expand(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return both bounds in the shape of one input of the batch ``like``, (n, channels, ...)."""
        low, high = (_expand_bound(bound, like) for bound in self._bounds)
        return low, high

    def propagate(self, linear: LinearOperation, relevance: Tensor, z: Tensor | None, biases: bool) -> Tensor:
        """R_i = a w^T s - low max(0, w)^T s - high min(0, w)^T s."""
        if z is None:
            z = linear.forward(linear.a, linear.weight)
        low, high = self.expand(linear.a)
        positive, negative = linear.weight.clamp(min=0), linear.weight.clamp(max=0)
        z = z - linear.forward(low, positive) - linear.forward(high, negative)
        if biases and linear.bias is not None:
            z = z + linear.bias
        s = safe_divide(relevance, z)
        result = linear.adjoint(s, linear.weight).mul_(linear.a)
        result -= linear.adjoint(s, positive).mul_(low)
        result -= linear.adjoint(s, negative).mul_(high)
        return result


@dataclass(frozen=True)
class WSquare(Rule):
    """The LRP-w^2 rule, which distributes relevance in proportion to the squared weights."""

    def propagate(self, linear: LinearOperation, relevance: Tensor, z: Tensor | None, biases: bool) -> Tensor:  # noqa: ARG002  # independent of the inputs
        """Apply R_i = V^T s, s = R / (1 V), where V holds the squared weights and 1 is an input of ones."""
        return _propagate_by_weight(linear, relevance, linear.weight.square())


@dataclass(frozen=True)
class Flat(Rule):
    """The LRP-flat rule, which assigns equal relevance to all inputs that an output depends on."""

    def propagate(self, linear: LinearOperation, relevance: Tensor, z: Tensor | None, biases: bool) -> Tensor:  # noqa: ARG002  # independent of the inputs
        """Apply R_i = V^T s, s = R / (1 V), where V has the shape of the weights and 1 and V are all ones."""
        return _propagate_by_weight(linear, relevance, torch.ones_like(linear.weight))


def _to_double(values: Any) -> Tensor:
    if isinstance(values, torch.Tensor):
        return values.detach().cpu().double()
    return torch.as_tensor(np.asarray(values, dtype=np.float64))


def _expand_bound(bound: Tensor, like: Tensor) -> Tensor:
    shape = tuple(like.shape[1:])
    per_channel = bound.ndim == 1 and len(shape) > 1
    placed = bound.reshape(-1, *[1] * (len(shape) - 1)) if per_channel else bound
    if bound.numel() == math.prod(shape):  # the network flattens its inputs first
        placed = bound.reshape(shape)
    elif bound.ndim == 2 and len(shape) == 1 and len(like) % len(bound) == 0:  # several rows per input
        return bound.to(like).repeat(len(like) // len(bound), 1)
    try:
        return placed.to(like).expand(1, *shape)
    except RuntimeError:
        raise InvalidInputError(
            f"ZBox: low and high must be numbers, one number per channel, or arrays with the shape of one "
            f"input, {shape}; got shape {tuple(bound.shape)}."
        ) from None


def _propagate_by_weight(linear: LinearOperation, relevance: Tensor, weight: Tensor) -> Tensor:
    return linear.adjoint(safe_divide(relevance, linear.forward(linear.ones, weight)), weight)


def gamma_ratios(relevance: Tensor, z: Tensor, total: Tensor, half: float) -> tuple[Tensor, Tensor]:
    """Return u = R / ((1 + g/2) |z| + g/2 T), and u with the sign of z.

    ``half`` is g/2, and ``total`` is g/2 T, which is overwritten. The computation uses few steps and works in
    place, since for large images it takes as long as the products with weights.
    """
    if half == 0:  # where contributions cancel, no relevance passes through
        u = safe_divide(relevance, z.abs())
        return u, torch.where(z < 0, -u, u)
    signed = total.clamp_(min=_NEGLIGIBLE[total.dtype]).copysign_(z).add_(z, alpha=1 + half)
    s = relevance / signed
    return torch.div(relevance, signed.abs_(), out=signed), s


def is_negligible(totals: Tensor) -> Tensor:
    """Return a mask of the sums of absolute values that are 0 or too small to divide by."""
    return totals < _NEGLIGIBLE[totals.dtype]


def safe_divide(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Return numerator / denominator, or 0 where the denominator is 0."""
    zero = denominator == 0
    return (numerator / denominator.masked_fill(zero, 1.0)).masked_fill_(zero, 0.0)


def check_number(value: Any, where: str, name: str) -> None:
    """Raise an error unless the value is a finite, nonnegative number."""
    real = isinstance(value, (int, float, np.integer, np.floating))
    if not real or isinstance(value, (bool, np.timedelta64)) or not 0 <= value < float("inf"):
        raise InvalidInputError(f"{where}: {name} must be a nonnegative number; got {value!r}.")
