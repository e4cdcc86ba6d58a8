"""Rows in tiles of a fixed size, so that the results of a row do not depend on the rows around it.

BLAS sums in an order that depends on the shape of a matrix, so a row that is read alone and the same row in a
table can differ in the last bit. Here, all computations use tiles of the same number of rows; the last tile
is padded with copies of the last row. The compiled loops treat each row alike and need no tiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from whycluster.core import blocks, outputs
from whycluster.core.arrays import Codes, Floats
from whycluster.core.attribution import Attribution, CodedQuery, Population, attribute, block_rows, measured
from whycluster.core.energies import Energy
from whycluster.core.rows import Rows
from whycluster.core.rules import SEQUENTIAL, SOFT
from whycluster.data.table import Table

TILE = 64
"""The number of rows in a tile: larger tiles slow down single rows, and smaller ones slow down tables."""


class Tiles(Rows):
    """Some rows of a table, as inputs of the network, in whole tiles.

    Parameters
    ----------
    rows : the table
    start, stop : its rows to read
    energy : the energy of the network
    """

    by_columns, most_rows, stand_alone = False, TILE, True

    def __init__(self, rows: Table, start: int, stop: int, energy: Energy) -> None:
        self.native, self.dtype, self.where, self.name = rows.native, rows.dtype, rows.where, rows.name
        self.n_features, self.n_rows = rows.n_features, _whole(stop - start)
        self._rows = rows
        self._x = np.empty((self.n_rows, energy.n_inputs))
        part = self._x[: stop - start]
        np.copyto(part, rows.inputs_in_tiles(start, stop, TILE, energy.offset, part))
        self._x[stop - start :] = self._x[stop - start - 1]

    def inputs(self, start: int, stop: int, offset: Floats | None, out: Floats) -> Floats:  # noqa: ARG002  # already subtracted
        """Return rows start..stop of the tiles."""
        return self._x[start:stop]

    def why_out_of_range(self) -> str:
        """Return the error message for rows that lead to NaN, infinity or an underflow."""
        return self._rows.why_out_of_range()


def _whole(n_rows: int) -> int:
    """Return the number of rows in whole tiles."""
    return -(-n_rows // TILE) * TILE


def attribute_each(energy: Energy, rows: Table, query: CodedQuery, population: Population) -> Attribution:
    """Return the relevance of every feature for every row, as it would be for each row alone."""
    query = query.for_rows(rows)
    if energy.compiled is not None and energy.compiled.is_available and query.rule not in (SEQUENTIAL, SOFT):
        return attribute(energy, rows, query, population)
    query, n_rows = measured(query, energy, population), rows.n_rows
    relevance = np.empty((n_rows, rows.n_features), rows.dtype)
    cluster, competitor = np.empty(n_rows, np.intp), np.empty(n_rows, np.intp)
    evidence = np.empty(n_rows, rows.dtype)
    for start, stop, tiles in _chunks(energy, rows):
        with _one_thread(tiles):
            part = attribute(energy, tiles, _part(query, start, stop), population)
        chosen = slice(0, stop - start)
        relevance[start:stop], evidence[start:stop] = part.relevance[chosen], part.evidence[chosen]
        cluster[start:stop], competitor[start:stop] = part.cluster[chosen], part.competitor[chosen]
    return Attribution(relevance, cluster, competitor, evidence, query.beta, query.prior)


def assign_each(energy: Energy, rows: Table) -> Codes:
    """Return the cluster of each row, (n,), as it would be for each row alone."""
    if energy.loops is not None:
        return outputs.assign(energy, rows)
    cluster = np.empty(rows.n_rows, dtype=np.intp)
    for start, stop, tiles in _chunks(energy, rows):
        with _one_thread(tiles):
            cluster[start:stop] = outputs.assign(energy, tiles)[: stop - start]
    return cluster


def _one_thread(tiles: Tiles) -> AbstractContextManager[None]:
    """Limit BLAS to one thread for a single tile, as for several tiles."""
    return blocks.single_threaded() if tiles.n_rows <= TILE else nullcontext()


def _chunks(energy: Energy, rows: Table) -> Iterator[tuple[int, int, Tiles]]:
    """Iterate over the rows, many tiles at a time, since reading rows through steps has a fixed cost."""
    size = _whole(block_rows(energy, rows))
    for start in range(0, rows.n_rows, size):
        stop = min(start + size, rows.n_rows)
        yield start, stop, Tiles(rows, start, stop, energy)


def _part(query: CodedQuery, start: int, stop: int) -> CodedQuery:
    """Return the query about some rows, padded to whole tiles."""
    return replace(
        query,
        cluster=_filled(query.cluster, start, stop),
        competitor=_filled(query.competitor, start, stop),
    )


def _filled(codes: Codes | None, start: int, stop: int) -> Codes | None:
    if codes is None:
        return None
    part: NDArray[np.intp] = codes[np.minimum(np.arange(start, start + _whole(stop - start)), stop - 1)]
    return part
