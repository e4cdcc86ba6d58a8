"""LRP of one input, layer by layer, with all contributions c_ij = a_i w_ij explicit, in double precision.

A linear layer becomes its matrix: the images of all unit vectors. A `Pass` records the steps of a forward
pass and propagates relevance back through them.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

Array = NDArray[np.float64]
Shares = tuple[Array, Array]  # (inputs, outputs) contributions, (outputs,) denominators


@dataclass(frozen=True)
class Layer:
    """A linear layer at one input: a_i, w_ij, b_j, and which inputs each output depends on."""

    a: Array
    w: Array
    b: Array
    connected: Array


Rule = Callable[[Layer], Shares]


def epsilon(size: float) -> Rule:
    """c_ij / (z_j + epsilon sign(z_j))."""

    def shares(layer: Layer) -> Shares:
        c = layer.a[:, None] * layer.w
        z = c.sum(axis=0) + layer.b
        return c, z + np.where(z >= 0, size, -size)

    return shares


def gamma(size: float) -> Rule:
    """Use c + gamma max(0, c) if the output is at least 0, and c + gamma min(0, c) if it is negative."""

    def shares(layer: Layer) -> Shares:
        c = layer.a[:, None] * layer.w
        positive = c.sum(axis=0) + layer.b >= 0
        c = c + size * np.where(positive, np.maximum(c, 0), np.minimum(c, 0))
        b = layer.b + size * np.where(positive, np.maximum(layer.b, 0), np.minimum(layer.b, 0))
        return c, c.sum(axis=0) + b

    return shares


def z_plus(layer: Layer) -> Shares:
    """Max(0, c_ij)."""
    c = np.maximum(layer.a[:, None] * layer.w, 0)
    return c, c.sum(axis=0) + np.maximum(layer.b, 0)


def z_b(low: Any, high: Any) -> Rule:
    """c_ij - l_i max(0, w_ij) - h_i min(0, w_ij)."""

    def shares(layer: Layer) -> Shares:
        least, most = (np.broadcast_to(bound, layer.a.shape)[:, None] for bound in (low, high))
        c = layer.a[:, None] * layer.w - least * np.maximum(layer.w, 0) - most * np.minimum(layer.w, 0)
        return c, c.sum(axis=0) + layer.b

    return shares


def w_squared(layer: Layer) -> Shares:
    """w_ij^2."""
    c = layer.w**2
    return c, c.sum(axis=0)


def flat(layer: Layer) -> Shares:
    """1 for each input that an output depends on."""
    return layer.connected, layer.connected.sum(axis=0)


def share(layer: Layer, R: Array, rule: Rule) -> Array:
    """R_i = sum_j c'_ij R_j / (sum_i c'_ij), without the terms whose denominator is 0."""
    c, total = rule(layer)
    parts: Array = c / np.where(total == 0, np.inf, total)
    return parts @ R


def in_proportion(c: Array, R: Array, connected: Array, size: float) -> Array:
    """Distribute relevance among the terms of a sum by the gamma rule; equally if the sum is exactly 0."""
    result = np.zeros(len(c))
    for j in range(len(R)):
        signed = np.maximum(c[:, j], 0) if c[:, j].sum() >= 0 else np.minimum(c[:, j], 0)
        shares = c[:, j] + size * signed
        total = shares.sum()
        part = connected[:, j] / connected[:, j].sum() if total == 0 else shares / total
        result += part * R[j]
    return result


def matrix(function: Callable[[torch.Tensor], torch.Tensor], shape: Sequence[int]) -> Array:
    """Return the matrix (inputs, outputs) of a linear function of one input of this shape."""
    n = math.prod(shape)
    with torch.no_grad():
        images = function(torch.eye(n, dtype=torch.float64).reshape(n, *shape))
    return np.asarray(images.reshape(n, -1))


def without_bias(layer: Any, ones: bool = False) -> Any:
    """Return a copy of a layer in double precision without bias; with ``ones``, all weights are 1."""
    layer = copy.deepcopy(layer).double()
    with torch.no_grad():
        if layer.bias is not None:
            layer.bias.zero_()
        if ones:
            layer.weight.fill_(1.0)
    return layer


@dataclass(eq=False)
class Value:
    """The result of a step, and the relevance propagated to it so far."""

    value: Array
    relevance: Array = field(init=False)

    def __post_init__(self) -> None:
        self.relevance = np.zeros_like(self.value)


@dataclass
class Pass:
    """The steps of a forward pass of one input.

    ``rule`` is the rule for all linear layers, ``rules`` overrides it for some, by their number in the order
    in which they run.
    """

    rule: Rule
    rules: dict[int, Rule] = field(default_factory=dict)
    biases: bool = False
    average: bool = False  # max pooling distributes relevance as a mean does
    sums: float = 0.1  # the gamma for sums, means and LayerNorm
    steps: list[Callable[[], None]] = field(default_factory=list)
    n_linear: int = 0

    def back(self, output: Value, R: Any) -> None:
        """Set the relevance of the output and propagate it back through all steps."""
        output.relevance = output.relevance + np.asarray(R, dtype=np.float64).reshape(output.value.shape)
        for step in reversed(self.steps):
            step()

    def step(self, value: Array, *parts: tuple[Value, Callable[[Array], Array]]) -> Value:
        """Record a value, and how each of its sources takes its relevance."""
        made = Value(value)

        def go_back() -> None:
            for source, take in parts:
                source.relevance = source.relevance + take(made.relevance).reshape(source.value.shape)

        self.steps.append(go_back)
        return made

    def linear(self, layer: Any, x: Value, norm: Any = None) -> Value:
        """Apply a convolution, possibly transposed, or a matrix, together with the batch norm after it."""
        shape = x.value.shape
        w = matrix(without_bias(layer), shape)
        connected = matrix(without_bias(layer, ones=True), shape)
        layer = copy.deepcopy(layer).double()
        with torch.no_grad():
            out = layer(torch.from_numpy(x.value)[None])[0]
        made = np.asarray(out)
        b = made.ravel() - x.value.ravel() @ w
        if norm is not None:
            scale, shift = batch_scale(norm)
            spread = (-1, *[1] * (made.ndim - 1))
            scale = np.broadcast_to(scale.reshape(spread), made.shape).ravel()
            shift = np.broadcast_to(shift.reshape(spread), made.shape).ravel()
            w, b = w * scale, b * scale + shift
            made = (made.ravel() * scale + shift).reshape(made.shape)
        rule = self.rules.get(self.n_linear, self.rule)
        self.n_linear += 1
        counted = b if self.biases else np.zeros_like(b)
        here = Layer(x.value.ravel(), w, counted, connected)
        return self.step(made, (x, lambda R: share(here, R.ravel(), rule)))

    def rows(self, layer: Any, x: Value) -> Value:
        """Apply a matrix to each token."""
        number = self.n_linear
        found = []
        for row in self.split(x):
            self.n_linear = number
            found.append(self.linear(layer, row))
        return self.stack(found)

    def each(self, function: Callable[[torch.Tensor], torch.Tensor], x: Value) -> Value:
        """Apply an elementwise function: relevance stays where it is."""
        with torch.no_grad():
            return self.step(np.asarray(function(torch.from_numpy(x.value))), (x, lambda R: R))

    def add(self, x: Value, y: Value) -> Value:
        """Add two values elementwise."""

        def part(which: int) -> Callable[[Array], Array]:
            def take(R: Array) -> Array:
                found = np.zeros_like(x.value)
                for place in np.ndindex(found.shape):
                    c = np.array([[x.value[place]], [y.value[place]]])
                    found[place] = in_proportion(
                        c[[which, 1 - which]], R[place][None], np.ones((2, 1)), self.sums
                    )[0]
                return found

            return take

        return self.step(x.value + y.value, (x, part(0)), (y, part(1)))

    def shift(self, x: Value, constant: Any) -> Value:
        """Add a constant, which takes relevance only if biases do."""
        added = x.value + np.asarray(constant)
        if not self.biases:
            return self.step(added, (x, lambda R: R))
        return self.step(
            added, (x, lambda R: np.where(added == 0, 0, x.value * R / np.where(added == 0, 1, added)))
        )

    def scale(self, x: Value, constant: Any) -> Value:
        """Scale each value: relevance stays where it is."""
        return self.step(x.value * np.asarray(constant), (x, lambda R: R))

    def average_of(self, function: Callable[[torch.Tensor], torch.Tensor], x: Value) -> Value:
        """Apply a mean, a pooling or an interpolation: relevance is proportional."""
        w = matrix(function, x.value.shape)
        with torch.no_grad():
            made = np.asarray(function(torch.from_numpy(x.value)[None])[0])
        c = x.value.ravel()[:, None] * w
        return self.step(made, (x, lambda R: in_proportion(c, R.ravel(), (w != 0).astype(float), self.sums)))

    def max_pool(self, x: Value, size: int, stride: int, padding: int = 0) -> Value:
        """Pool maxima: all relevance to the first maximum; windows of zeros share it; or as for a mean."""
        channels, height, width = x.value.shape
        high = (height + 2 * padding - size) // stride + 1
        wide = (width + 2 * padding - size) // stride + 1
        made = np.empty((channels, high, wide))
        windows = {}
        for c, i, j in np.ndindex(made.shape):
            ys = range(max(0, i * stride - padding), min(height, i * stride - padding + size))
            xs = range(max(0, j * stride - padding), min(width, j * stride - padding + size))
            windows[c, i, j] = places = [(c, y, x_) for y in ys for x_ in xs]
            made[c, i, j] = max(x.value[place] for place in places)

        def take(R: Array) -> Array:
            found = np.zeros_like(x.value)
            for where, places in windows.items():
                values = np.array([x.value[place] for place in places])
                if self.average:
                    equal = np.ones((len(values), 1))
                    parts = in_proportion(values[:, None], np.ones(1), equal, self.sums)
                elif values.max() == 0:  # as after a ReLU: all values are 0
                    parts = np.full(len(values), 1 / len(values))
                else:
                    parts = np.eye(len(values))[values.argmax()]
                for place, part in zip(places, parts, strict=True):
                    found[place] += part * R[where]
            return found

        return self.step(made, (x, take))

    def batch_norm(self, norm: Any, x: Value) -> Value:
        """Apply a batch norm without a linear layer before it: a scale and a shift of each channel."""
        scale, shift = (s.reshape(-1, *[1] * (x.value.ndim - 1)) for s in batch_scale(norm))
        return self.shift(self.scale(x, scale), shift)

    def layer_norm(self, norm: Any, x: Value) -> Value:
        """Normalize the last axis; with a constant deviation this is a linear layer."""
        n = x.value.shape[-1]
        weight = np.ones(n) if norm.weight is None else np.asarray(norm.weight.detach().double())
        bias = np.zeros(n) if norm.bias is None else np.asarray(norm.bias.detach().double())
        centered = x.value - x.value.mean(axis=-1, keepdims=True)
        deviation = np.sqrt((centered**2).mean(axis=-1, keepdims=True) + norm.eps)

        def take(R: Array) -> Array:
            found = np.zeros_like(x.value)
            for place in np.ndindex(x.value.shape[:-1]):
                w = (np.eye(n) - 1 / n) * weight / deviation[place]
                b = bias if self.biases else np.zeros(n)
                found[place] = share(Layer(x.value[place], w, b, np.ones((n, n))), R[place], gamma(self.sums))
            return found

        return self.step(centered / deviation * weight + bias, (x, take))

    def attention(self, layer: Any, x: Value) -> Value:
        """Apply the self-attention of a `torch.nn.MultiheadAttention` to tokens (T, d)."""
        w, b = (np.asarray(p.detach().double()) for p in (layer.in_proj_weight, layer.in_proj_bias))
        d, heads = layer.embed_dim, layer.num_heads
        q, k = (x.value @ w[i * d : (i + 1) * d].T + b[i * d : (i + 1) * d] for i in range(2))
        values = nn.Linear(d, d).double()
        with torch.no_grad():
            values.weight.copy_(torch.from_numpy(w[2 * d :]))
            values.bias.copy_(torch.from_numpy(b[2 * d :]))
        v = self.rows(values, x)
        mixed = self.mix(q, k, v, heads)
        return self.rows(layer.out_proj, mixed)

    def mix(self, q: Array, k: Array, v: Value, heads: int) -> Value:
        """Average the values (T, d) per head, with constant weights."""
        n_tokens, d = v.value.shape
        size = d // heads
        weights = np.empty((heads, n_tokens, n_tokens))
        for h in range(heads):
            s = slice(h * size, (h + 1) * size)
            scores = q[:, s] @ k[:, s].T / math.sqrt(size)
            scores = np.exp(scores - scores.max(axis=1, keepdims=True))
            weights[h] = scores / scores.sum(axis=1, keepdims=True)
        head_of = np.arange(d) // size
        made = np.stack([weights[head_of[i]] @ v.value[:, i] for i in range(d)], axis=1)

        def take(R: Array) -> Array:
            found = np.zeros_like(v.value)
            for i in range(d):
                c = v.value[:, i][:, None] * weights[head_of[i]].T
                found[:, i] = in_proportion(c, R[:, i], np.ones_like(c), self.sums)
            return found

        return self.step(made, (v, take))

    def moved(self, function: Callable[[Any], Any], x: Value) -> Value:
        """Move or drop values: relevance moves back with them."""
        source = function(np.arange(x.value.size).reshape(x.value.shape))

        def take(R: Array) -> Array:
            found = np.zeros(x.value.size)
            np.add.at(found, source.ravel(), R.ravel())
            return found

        return self.step(function(x.value), (x, take))

    def split(self, x: Value) -> list[Value]:
        """Return the parts along the first axis."""
        return [self.moved(lambda a, i=i: a[i], x) for i in range(len(x.value))]  # type: ignore[misc]

    def stack(self, parts: Sequence[Value]) -> Value:
        """Stack parts as rows."""
        made = np.stack([part.value for part in parts])
        return self.step(made, *[(part, lambda R, i=i: R[i]) for i, part in enumerate(parts)])

    def with_constant(self, constant: Any, x: Value) -> Value:
        """Prepend constant rows to x."""
        first = np.asarray(constant, dtype=np.float64)
        return self.step(np.concatenate([first, x.value]), (x, lambda R: R[len(first) :]))


def batch_scale(norm: Any) -> tuple[Array, Array]:
    """Return the scale and the shift of each channel of a batch norm in evaluation mode."""
    mean, var, weight, bias = (
        np.asarray(t.detach().double()) for t in (norm.running_mean, norm.running_var, norm.weight, norm.bias)
    )
    scale = weight / np.sqrt(var + norm.eps)
    return scale, bias - mean * scale
