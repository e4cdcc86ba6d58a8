"""The energies of a model as SQL expressions, one function per family of models."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import isinf

import numpy as np

from whycluster.core.arrays import Floats
from whycluster.core.energies import Energy, KernelEnergy, LinearEnergy, SquaredEnergy
from whycluster.core.errors import UnsupportedModelError
from whycluster.models.energies import (
    BernoulliEnergy,
    CosineEnergy,
    DiagonalGaussianEnergy,
    FloorEnergy,
    GaussianEnergy,
    ManhattanEnergy,
    StudentEnergy,
    TreeEnergy,
    ZeroReferenceEnergy,
)
from whycluster.segments.sql.query import Query, Value
from whycluster.segments.sql.steps import linear

_LEAST_EXPONENT = -700.0  # PostgreSQL raises an error if an exponential underflows


@functools.singledispatch
def energies_of(energy: Energy, query: Query, x: Sequence[Value]) -> list[Value]:  # noqa: ARG001  # always raises
    """Return s_k for each cluster or, for a tree, the evidence for the left node of each pair."""
    raise UnsupportedModelError(
        f"to_sql: the energies of the model, {type(energy).__name__} ({energy.title}), cannot be written in "
        "SQL. The supported models have centroids, medoids, support vectors, Gaussian components or a tree "
        "of centroids."
    )


@energies_of.register(SquaredEnergy)
def _squared(energy: SquaredEnergy, query: Query, x: Sequence[Value]) -> list[Value]:
    """Return |mu_k|^2 - 2 mu_k.x or, if this would lose precision, |x - mu_k|^2."""
    if type(energy) is not SquaredEnergy:
        return energies_of.dispatch(object)(energy, query, x)
    if energy.linear is None:
        return _distances(energy, query, x)
    slopes, bias = energy.linear
    moved = _moved(query, x, energy.offset)
    return [linear(query, moved, w, float(b)) for w, b in zip(slopes, bias, strict=True)]


def _distances(energy: SquaredEnergy, query: Query, x: Sequence[Value]) -> list[Value]:
    """Return |x - mu_k|^2."""
    return [query.sum(_squares(query, x, center, energy.scale)) for center in energy.prototypes]


def _squares(query: Query, x: Sequence[Value], center: Floats, scale: Floats) -> list[Value]:
    """Return scale * (x - center)^2, feature by feature, without features of scale 0."""
    terms = []
    for value, c, weight in zip(x, center.tolist(), scale.tolist(), strict=True):
        apart = query.write("({} - {})", value, c) if c else value
        if weight == 1.0:
            terms.append(query.write("{} * {}", apart, apart))
        elif weight:
            terms.append(query.write("{} * {} * {}", weight, apart, apart))
    return terms


def _moved(query: Query, x: Sequence[Value], offset: Floats | None) -> list[Value]:
    if offset is None:
        return list(x)
    pairs = zip(x, offset.tolist(), strict=True)
    return [query.bind(query.write("({} - {})", value, o)) if o else value for value, o in pairs]


@energies_of.register(ZeroReferenceEnergy)
def _zero_reference(energy: ZeroReferenceEnergy, query: Query, x: Sequence[Value]) -> list[Value]:
    return energies_of(energy.squares, query, x)


@energies_of.register(StudentEnergy)
def _student(energy: StudentEnergy, query: Query, x: Sequence[Value]) -> list[Value]:
    """Return power * log(alpha + |x - mu_k|^2)."""
    distances = _distances(energy.squares, query, x)
    return [query.write("({} * LN({} + {}))", energy.power, energy.alpha, distance) for distance in distances]


@energies_of.register(ManhattanEnergy)
def _manhattan(energy: ManhattanEnergy, query: Query, x: Sequence[Value]) -> list[Value]:
    return [
        query.sum([query.write("ABS({} - {})", v, c) for v, c in zip(x, center.tolist(), strict=True)])
        for center in energy.prototypes
    ]


@energies_of.register(BernoulliEnergy)
def _bernoulli(energy: BernoulliEnergy, query: Query, x: Sequence[Value]) -> list[Value]:
    return energies_of(energy.linearized(), query, x)


@energies_of.register(LinearEnergy)
def _linear(energy: LinearEnergy, query: Query, x: Sequence[Value]) -> list[Value]:
    pairs = zip(energy.directions, energy.bias, strict=True)
    return [linear(query, x, -direction, -float(bias)) for direction, bias in pairs]


@energies_of.register(CosineEnergy)
def _cosine(energy: CosineEnergy, query: Query, x: Sequence[Value]) -> list[Value]:
    """Return -cos(x, mu_k), which is 0 for a row of zeros."""
    length = query.write("SQRT{}", query.sum([query.write("{} * {}", value, value) for value in x]))
    divisor = query.bind(query.write("COALESCE(NULLIF({}, {}), {})", length, 0.0, 1.0))
    products = [linear(query, x, -direction) for direction in energy.directions]
    return [query.write("({} / {})", product, divisor) for product in products]


@energies_of.register(DiagonalGaussianEnergy)
def _diagonal(energy: DiagonalGaussianEnergy, query: Query, x: Sequence[Value]) -> list[Value]:
    constants = -np.log(energy.precisions).sum(axis=1) / 2.0 - energy.log_weights
    rows = zip(energy.prototypes, energy.precisions / 2.0, constants.tolist(), strict=True)
    return [
        query.sum([query.write("{}", constant), *_squares(query, x, center, scale)])
        for center, scale, constant in rows
    ]


@energies_of.register(GaussianEnergy)
def _gaussian(energy: GaussianEnergy, query: Query, x: Sequence[Value]) -> list[Value]:
    """Return |P_k^T (x - mu_k)|^2 / 2, plus a constant of the component."""
    found = []
    for k, (center, bias) in enumerate(zip(energy.centers, energy.bias.tolist(), strict=True)):
        apart = [query.write("({} - {})", v, c) for v, c in zip(x, center.tolist(), strict=True)]
        root = energy.roots[k % len(energy.roots)]
        y = [query.bind(linear(query, apart, column)) for column in root.T]
        squares = [query.write("{} * {} * {}", 0.5, each, each) for each in y]
        found.append(query.sum([query.write("{}", bias), *squares]))
    return found


@energies_of.register(KernelEnergy)
def _kernel(energy: KernelEnergy, query: Query, x: Sequence[Value]) -> list[Value]:
    """Return the hard or soft minimum over the support vectors of each cluster."""
    if type(energy) is not KernelEnergy:
        return energies_of.dispatch(object)(energy, query, x)
    return _pooled(energy, query, energies_of(energy.units, query, x))


def _pooled(energy: KernelEnergy, query: Query, units: list[Value]) -> list[Value]:
    if isinf(energy.gamma):
        return [query.least(units[part]) for part in energy.clusters]
    pairs = zip(energy.log_weights.tolist(), units, strict=True)
    logits = [query.bind(query.write("({} - {} * {})", w, energy.gamma, unit)) for w, unit in pairs]
    return [_soft_minimum(query, logits[part], energy.gamma) for part in energy.clusters]


def _soft_minimum(query: Query, logits: list[Value], gamma: float) -> Value:
    """Return -1/gamma log sum_j exp(logit_j); the largest logit is subtracted first, to avoid overflow."""
    top = query.bind(query.greatest(logits))
    template = "EXP(GREATEST({} - {}, {}))"
    total = query.sum([query.write(template, each, top, _LEAST_EXPONENT) for each in logits])
    return query.write("(({} + LN{}) / {})", top, total, -gamma)


@energies_of.register(FloorEnergy)
def _floor(energy: FloorEnergy, query: Query, x: Sequence[Value]) -> list[Value]:
    """Return the energies of the clusters, which include |x|^2, followed by the floor."""
    clusters = energy.clusters
    units = _distances(clusters.units, query, x)
    return [*_pooled(clusters, query, units), query.write("{}", energy.floor)]


@energies_of.register(TreeEnergy)
def _tree(energy: TreeEnergy, query: Query, x: Sequence[Value]) -> list[Value]:
    """Return |x - right|^2 - |x - left|^2 for each pair of nodes."""
    nodes = energies_of(energy.nodes, query, x)
    pairs = zip(nodes[::2], nodes[1::2], strict=True)
    return [query.write("({} - {})", right, left) for left, right in pairs]
