"""LRP of one input, layer by layer, with every contribution c_ij = a_i w_ij written out, in double precision.

A linear layer becomes its matrix: each unit vector is pushed through it. A `Pass` holds what was done, and
goes back through it.
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
Shares = tuple[Array, Array]  # (inputs, outputs) what each input brings, (outputs,) what is divided by


@dataclass(frozen=True)
class Layer:
    """A linear layer at one input: a_i, w_ij, b_j, and which inputs an output is made of at all."""

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
    """C + gamma max(0, c) where the output is at least 0, c + gamma min(0, c) where it is negative."""

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
    """1 for each input that an output is made of."""
    return layer.connected, layer.connected.sum(axis=0)


def share(layer: Layer, R: Array, rule: Rule) -> Array:
    """R_i = sum_j c'_ij R_j / (sum_i c'_ij), nothing where that is 0."""
    c, total = rule(layer)
    parts: Array = c / np.where(total == 0, np.inf, total)
    return parts @ R


def in_proportion(c: Array, R: Array, connected: Array, size: float) -> Array:
    """Shares of a sum, those of its sign with 1 + gamma; equal ones where it is exactly 0."""
    result = np.zeros(len(c))
    for j in range(len(R)):
        signed = np.maximum(c[:, j], 0) if c[:, j].sum() >= 0 else np.minimum(c[:, j], 0)
        shares = c[:, j] + size * signed
        total = shares.sum()
        part = connected[:, j] / connected[:, j].sum() if total == 0 else shares / total
        result += part * R[j]
    return result


def matrix(function: Callable[[torch.Tensor], torch.Tensor], shape: Sequence[int]) -> Array:
    """(inputs, outputs) of a linear function of one input of this shape."""
    n = math.prod(shape)
    with torch.no_grad():
        images = function(torch.eye(n, dtype=torch.float64).reshape(n, *shape))
    return np.asarray(images.reshape(n, -1))


def without_bias(layer: Any, ones: bool = False) -> Any:
    """A copy of a layer in double precision whose bias is 0, and whose weights may all be 1."""
    layer = copy.deepcopy(layer).double()
    with torch.no_grad():
        if layer.bias is not None:
            layer.bias.zero_()
        if ones:
            layer.weight.fill_(1.0)
    return layer


@dataclass(eq=False)
class Value:
    """What comes out of a step, and the relevance that has come back to it so far."""

    value: Array
    relevance: Array = field(init=False)

    def __post_init__(self) -> None:
        self.relevance = np.zeros_like(self.value)


@dataclass
class Pass:
    """The steps of a forward pass of one input.

    ``rule`` is that of all linear layers, ``rules`` those of some, by their number in the order they run.
    """

    rule: Rule
    rules: dict[int, Rule] = field(default_factory=dict)
    biases: bool = False
    average: bool = False  # maximum pooling: shares as of a mean
    sums: float = 0.1  # the gamma of sums, means and LayerNorm
    steps: list[Callable[[], None]] = field(default_factory=list)
    n_linear: int = 0

    def back(self, output: Value, R: Any) -> None:
        """Give the output its relevance, and go back through all steps."""
        output.relevance = output.relevance + np.asarray(R, dtype=np.float64).reshape(output.value.shape)
        for step in reversed(self.steps):
            step()

    def step(self, value: Array, *parts: tuple[Value, Callable[[Array], Array]]) -> Value:
        """A new value, and what each of those that it is made of takes of its relevance."""
        made = Value(value)

        def go_back() -> None:
            for source, take in parts:
                source.relevance = source.relevance + take(made.relevance).reshape(source.value.shape)

        self.steps.append(go_back)
        return made

    def linear(self, layer: Any, x: Value, norm: Any = None) -> Value:
        """A convolution, transposed or not, or a matrix; with the batch norm behind it as part of it."""
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
        """A matrix for each token on its own."""
        number = self.n_linear
        found = []
        for row in self.split(x):
            self.n_linear = number
            found.append(self.linear(layer, row))
        return self.stack(found)

    def each(self, function: Callable[[torch.Tensor], torch.Tensor], x: Value) -> Value:
        """Each value on its own: relevance stays."""
        with torch.no_grad():
            return self.step(np.asarray(function(torch.from_numpy(x.value))), (x, lambda R: R))

    def add(self, x: Value, y: Value) -> Value:
        """A sum of two, value by value."""

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
        """What is added and does not depend on the input takes nothing."""
        added = x.value + np.asarray(constant)
        if not self.biases:
            return self.step(added, (x, lambda R: R))
        return self.step(
            added, (x, lambda R: np.where(added == 0, 0, x.value * R / np.where(added == 0, 1, added)))
        )

    def scale(self, x: Value, constant: Any) -> Value:
        """A scale of each value leaves relevance where it is."""
        return self.step(x.value * np.asarray(constant), (x, lambda R: R))

    def average_of(self, function: Callable[[torch.Tensor], torch.Tensor], x: Value) -> Value:
        """A mean, pooled or of all, or an interpolation: shared in proportion."""
        w = matrix(function, x.value.shape)
        with torch.no_grad():
            made = np.asarray(function(torch.from_numpy(x.value)[None])[0])
        c = x.value.ravel()[:, None] * w
        return self.step(made, (x, lambda R: in_proportion(c, R.ravel(), (w != 0).astype(float), self.sums)))

    def max_pool(self, x: Value, size: int, stride: int, padding: int = 0) -> Value:
        """The winner of each window takes all, the first of equals, but zeros share; or as of a mean."""
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
                elif values.max() == 0:  # as behind a ReLU: all of them are
                    parts = np.full(len(values), 1 / len(values))
                else:
                    parts = np.eye(len(values))[values.argmax()]
                for place, part in zip(places, parts, strict=True):
                    found[place] += part * R[where]
            return found

        return self.step(made, (x, take))

    def batch_norm(self, norm: Any, x: Value) -> Value:
        """On its own, with no linear layer before it: a scale and a shift of each channel."""
        scale, shift = (s.reshape(-1, *[1] * (x.value.ndim - 1)) for s in batch_scale(norm))
        return self.shift(self.scale(x, scale), shift)

    def layer_norm(self, norm: Any, x: Value) -> Value:
        """The last axis; a linear layer, as the deviation is held constant."""
        n = x.value.shape[-1]
        weight = np.ones(n) if norm.weight is None else np.asarray(norm.weight.detach().double())
        bias = np.zeros(n) if norm.bias is None else np.asarray(norm.bias.detach().double())
        centred = x.value - x.value.mean(axis=-1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + norm.eps)

        def take(R: Array) -> Array:
            found = np.zeros_like(x.value)
            for place in np.ndindex(x.value.shape[:-1]):
                w = (np.eye(n) - 1 / n) * weight / deviation[place]
                b = bias if self.biases else np.zeros(n)
                found[place] = share(Layer(x.value[place], w, b, np.ones((n, n))), R[place], gamma(self.sums))
            return found

        return self.step(centred / deviation * weight + bias, (x, take))

    def attention(self, layer: Any, x: Value) -> Value:
        """Self-attention of tokens (T, d) by a `torch.nn.MultiheadAttention`."""
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
        """Means of the values (T, d), head by head; their weights are held constant."""
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
        """Values moved about, or left out: relevance goes the way back."""
        source = function(np.arange(x.value.size).reshape(x.value.shape))

        def take(R: Array) -> Array:
            found = np.zeros(x.value.size)
            np.add.at(found, source.ravel(), R.ravel())
            return found

        return self.step(function(x.value), (x, take))

    def split(self, x: Value) -> list[Value]:
        """The parts along the first axis."""
        return [self.moved(lambda a, i=i: a[i], x) for i in range(len(x.value))]  # type: ignore[misc]

    def stack(self, parts: Sequence[Value]) -> Value:
        """Parts as rows of one."""
        made = np.stack([part.value for part in parts])
        return self.step(made, *[(part, lambda R, i=i: R[i]) for i, part in enumerate(parts)])

    def with_constant(self, constant: Any, x: Value) -> Value:
        """Constant rows before those of x."""
        first = np.asarray(constant, dtype=np.float64)
        return self.step(np.concatenate([first, x.value]), (x, lambda R: R[len(first) :]))


def batch_scale(norm: Any) -> tuple[Array, Array]:
    """The scale and the shift of each channel of a batch norm in the mode of evaluation."""
    mean, var, weight, bias = (
        np.asarray(t.detach().double()) for t in (norm.running_mean, norm.running_var, norm.weight, norm.bias)
    )
    scale = weight / np.sqrt(var + norm.eps)
    return scale, bias - mean * scale
