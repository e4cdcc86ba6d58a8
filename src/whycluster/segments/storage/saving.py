"""`save` writes networks and explanations to files, and `load` reads them."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from whycluster.core.energies import Energy
from whycluster.core.errors import InvalidInputError, MissingDependencyError, UnsupportedModelError
from whycluster.core.rules import CONTRAST, RULES, SOFT, WITH_PRIOR, Prior
from whycluster.data.absent_table import AbsentTable
from whycluster.data.column_kinds import is_numeric
from whycluster.data.context_table import ContextTable
from whycluster.data.files import as_path, replacing
from whycluster.data.frame_table import numbers_of
from whycluster.data.frames import BACKENDS
from whycluster.data.labels import Labels
from whycluster.data.mixed_table import MixedTable
from whycluster.data.opening import open_table
from whycluster.data.sparse_table import SparseTable
from whycluster.data.table import Table
from whycluster.explanations.base import BaseExplanation
from whycluster.explanations.explanation import Explanation
from whycluster.models.network import Network
from whycluster.segments.storage.archive import ArchiveReader, ArchiveWriter, encode, read
from whycluster.segments.storage.networks import (
    PIPELINE,
    check_savable,
    encoded,
    encoded_lists,
    encoded_names,
    put_agreement,
    put_energy,
    put_fidelity,
    put_network,
    take,
    take_agreement,
    take_categories,
    take_codes,
    take_energy,
    take_fidelity,
    take_network,
)
from whycluster.segments.storage.parameters import NOT_NEGATIVE

if TYPE_CHECKING:
    from whycluster.segments.segmentation import Segmentation

_RESULTS = ("float64", "float32")
_SPARSE = ("csr_array", "csr_matrix")
_CONTAINERS = ("none", "array", *_SPARSE, *BACKENDS)
_CONTEXT = (
    "save: explained rows can be saved only if their evidence depends on nothing else; here it also depends "
    "on the context of each row, such as other time steps."
)
_ARRAYS = "Alternatively, save only the arrays of the explanation with data=False."


def save(
    what: Network | Explanation | Segmentation, path: str | os.PathLike[str], *, data: bool = True
) -> None:
    """Write a segmentation, a network or an explanation to a file that `load` can read.

    The file uses the safetensors format with JSON metadata and contains numbers and text but no code. A
    loaded object computes bit-identical relevance. Requires safetensors: ``pip install "whycluster[save]"``.

    Parameters
    ----------
    what : a `Segmentation`, a `Network`, or an `Explanation` of the rows of a table. The steps of a pipeline
        are saved as part of a segmentation, if whycluster knows their classes. A network of the last step
        alone takes rows that the other steps have transformed. Networks that contain code cannot be saved:
        deep clusterings, and models whose assignments are verified with their own ``predict``.
    path : the file; an existing file is replaced, completely or not at all
    data : whether to save the rows of an explanation. Without the rows, the loaded explanation provides its
        arrays, `to_frame`, and `top` and `describe` without values. Rows are then numbered, because a pandas
        index is part of the rows. Summaries, reports and all other methods need the rows. Explanations
        through pipelines can be saved only without rows.
    """
    target = as_path(path, "save")
    if target.is_dir():
        raise InvalidInputError(f"save: path must be a file; {str(path)!r} is a folder.")
    if isinstance(what, Network):
        writer = _write_network(what)
    elif isinstance(what, BaseExplanation):
        writer = _write_explanation(what, data)
    else:
        writer = _write_segmentation(what)
    with replacing(target) as temporary:
        writer.write(temporary)


def _write_segmentation(what: Any) -> ArchiveWriter:
    from whycluster.segments.segmentation import Segmentation  # loads scikit-learn

    if not isinstance(what, Segmentation):
        raise _unsupported(what)
    from whycluster.segments.storage.segmentations import write_segmentation

    return write_segmentation(what)


def _unsupported(what: Any) -> UnsupportedModelError:
    kind = type(what).__name__
    lazy = "Call its compute method first." * (kind == "LazyExplanation")
    return UnsupportedModelError(
        f"save: what must be a Segmentation, a Network or an Explanation; got {kind}. "
        f"{lazy or 'For a fitted model, save its segmentation: wc.Segmentation.of(model, X).'}"
    )


def load(path: str | os.PathLike[str]) -> Any:
    """Read a `Segmentation`, a `Network` or an `Explanation` from a file that `save` wrote.

    Nothing in the file is run or imported. A file that was not written by `save` raises an
    `InvalidInputError`. Whatever the file contains, loading it takes at most 100 times its size in memory,
    plus 20 MB.

    Parameters
    ----------
    path : the file
    """
    stored = read(as_path(path, "load"))
    kind = stored.choice("kind", tuple(_LOADERS))
    try:
        found = _LOADERS[kind](stored)
    except MemoryError as error:
        raise InvalidInputError(
            f"load: the contents of {str(stored.path)!r} do not fit into the free memory."
        ) from error
    stored.close()
    return found


def _load_segmentation(stored: ArchiveReader) -> Segmentation:
    from whycluster.segments.storage.segmentations import load_segmentation  # loads scikit-learn

    return load_segmentation(stored)


def _write_network(network: Network) -> ArchiveWriter:
    check_savable(network)
    writer = ArchiveWriter("network")
    put_network(writer, network, network.labels)
    return writer


def digest(network: Network) -> str:
    """Return a hash of the contents that `save` would write for a network."""
    return _write_network(network).digest()


def _check_explanation(exp: BaseExplanation, data: bool) -> None:
    """Raise an error if an explanation cannot be saved."""
    if type(exp) is not Explanation:
        raise UnsupportedModelError(
            f"save: only explanations of tables can be saved; a {type(exp).__name__} also depends on the "
            "objects that computed its features. Save its arrays with numpy.savez instead."
        )
    if data and exp.table.goes_through_steps:
        raise UnsupportedModelError(f"{PIPELINE} {_ARRAYS}")
    if data and isinstance(exp.table, ContextTable):
        raise UnsupportedModelError(f"{_CONTEXT} {_ARRAYS}")
    if not len(exp):
        raise InvalidInputError("save: an explanation must contain at least one row; this one contains none.")


def _write_explanation(exp: BaseExplanation, data: bool) -> ArchiveWriter:
    _check_explanation(exp, data)
    assert type(exp) is Explanation
    writer = ArchiveWriter("explanation")
    for name in ("relevance", "evidence"):
        writer.put(name, getattr(exp, name))
    writer.put("cluster", exp.cluster_codes, "int64")
    writer.put("competitor", exp.competitor_codes, "int64")
    writer.put_values("labels", exp.labels)
    writer.facts.update(
        beta=encode(exp.beta, "beta"),
        rule=exp.rule,
        threshold=encode(exp.threshold, "threshold"),
        targeted=bool(exp.is_targeted),
        feature_names=encoded_names(exp.feature_names),
        has_rows=exp.positions is not None,
        called=encoded(_names(exp), "the names of rows"),
    )
    _put_reference(writer, exp)
    if exp.positions is not None:
        writer.put("rows", exp.positions, "int64")
    if exp.prior is not None:
        writer.put("prior", exp.prior.log_weight)
    put_fidelity(writer, exp.fidelity)
    put_agreement(writer, exp.agreement)
    table = exp.unchanged_table("save") if data else AbsentTable.like(exp.table, exp.assigned_codes)
    _put_table(writer, table)
    if not isinstance(table, AbsentTable):  # without rows, the energy cannot be used
        put_energy(writer, exp.energy)
    return writer


def _names(exp: Explanation) -> list[Any] | None:
    """Return the names of the rows, or None if the rows have no names or the names are part of the rows."""
    positions = range(len(exp)) if exp.positions is None else exp.positions.tolist()
    return None if exp.row_names is None else [exp.row_names[position] for position in positions]


def _load_explanation(stored: ArchiveReader) -> Explanation:
    relevance = take(stored, "relevance", "nd", _RESULTS)
    evidence = take(stored, "evidence", "n", [relevance.dtype.name])
    labels = stored.make("labels", Labels, stored.values("labels", "k")).names
    names = stored.objects("feature_names", stored.fact("feature_names", list))
    if len(names) != stored.lengths["d"]:
        raise stored.error(f"there must be {stored.lengths['d']} feature_names; got {len(names)}")
    table = _take_table(stored, names, len(labels))
    absent = isinstance(table, AbsentTable)
    energy = _AbsentEnergy(len(labels), len(names)) if absent else take_energy(stored)
    if len(labels) != energy.n_clusters:
        raise stored.error(f"there must be {energy.n_clusters} labels; got {len(labels)}")
    return Explanation(
        relevance=relevance,
        evidence=evidence,
        labels=labels,
        fidelity=take_fidelity(stored),
        agreement=take_agreement(stored),
        cluster_codes=take_codes(stored, "cluster", len(labels)),
        competitor_codes=take_codes(stored, "competitor", len(labels)),
        energy=energy,
        table=table,
        is_targeted=stored.fact("targeted", bool),
        owns_data=absent,
        **_take_rows(stored),
        **_take_query(stored, energy),
        **_take_reference(stored),
    )


def _take_rows(stored: ArchiveReader) -> dict[str, Any]:
    """Return the positions and the names of the rows in the explained data."""
    has_rows, called = stored.fact("has_rows", bool), stored.fact("called", list, type(None))
    rows = take(stored, "rows", "n", ["int64"], NOT_NEGATIVE).astype(np.intp) if has_rows else None
    if called is None:
        return {"positions": rows}
    positions, names = (
        range(stored.lengths["n"]) if rows is None else rows.tolist(),
        stored.objects("called", called),
    )
    if len(names) != len(positions):
        raise stored.error(f"'called' must contain {len(positions)} names; got {len(names)}")
    return {"positions": rows, "row_names": dict(zip(positions, names, strict=True))}


class _AbsentEnergy(Energy):
    """A placeholder for the energy of an explanation that was saved without its rows."""

    scratch_width, offset = 0, None

    def __init__(self, n_clusters: int, n_features: int) -> None:
        self.n_clusters, self.n_features = n_clusters, n_features

    def energies(self, *_: Any) -> None:
        """Never called, since reading the rows raises an error first."""
        raise NotImplementedError

    def combine(self, *_: Any) -> None:
        """Never called, since reading the rows raises an error first."""
        raise NotImplementedError

    def differentiate(self, *_: Any) -> None:
        """Never called, since reading the rows raises an error first."""
        raise NotImplementedError


def _take_query(stored: ArchiveReader, energy: Energy) -> dict[str, Any]:
    """Return the parameters of the rule of an explanation; raise an error if they contradict each other."""
    rule = stored.choice("rule", (*RULES, SOFT))
    beta, threshold = (stored.object(name, stored.fact(name, *_NUMBER)) for name in ("beta", "threshold"))
    if (beta is None) != (rule == CONTRAST) or not (beta is None or (type(beta) is float and beta > 0)):
        raise stored.error("'beta' must be a number above 0, or null for contrasts")
    if (threshold is None) != (rule != SOFT) or not (
        threshold is None or (type(threshold) is float and 0 < threshold < 1)
    ):
        raise stored.error(
            "'threshold' must be a probability for the rule 'soft' and null for all other rules"
        )
    prior = None
    if rule in WITH_PRIOR:
        prior = Prior(take(stored, "prior", "k", ["float64"]), energy.gives_probabilities, energy.contest)
    return {"rule": rule, "beta": beta, "threshold": threshold, "prior": prior}


def _put_reference(writer: ArchiveWriter, exp: Explanation) -> None:
    """Add the reference of an encoder's features, which tables do not have, and the reason for it."""
    if exp.reference is not None:
        writer.facts.update(reference=exp.reference, reference_reason=exp.reference_reason)


def _take_reference(stored: ArchiveReader) -> dict[str, Any]:
    """Return the reference that `_put_reference` added, if any, and the reason for it."""
    if not stored.has_fact("reference"):
        return {}
    point = stored.choice("reference", ("midpoint", "zero"))
    return {"reference": point, "reference_reason": stored.fact("reference_reason", str)}


_NUMBER = (float, dict, type(None))  # infinity is stored as an object


def _put_table(writer: ArchiveWriter, table: Table) -> None:
    """Add the rows and the type of their container."""
    writer.facts["categories"] = None
    if isinstance(table, MixedTable):
        writer.facts["categories"] = encoded_lists([table.categories.get(i) for i in range(table.n_features)])
    if isinstance(table, AbsentTable):
        writer.facts["data"] = "none"
        writer.put("assigned", table.assigned, "int64")
    elif isinstance(table, SparseTable):
        writer.facts["data"] = _SPARSE[_is_matrix(table.native)]
        writer.put_values("data", table.native.data)
        writer.put("data.indices", table.native.indices, "int64")
        writer.put("data.starts", table.native.indptr, "int64")
    elif isinstance(table.native, np.ndarray):
        writer.facts["data"] = "array"
        writer.put_values("data", table.native)
    else:
        _put_frame(writer, nw.from_native(table.native, eager_only=True))


def _is_matrix(native: Any) -> bool:
    """Return whether a sparse container is a matrix rather than an array."""
    from scipy.sparse import spmatrix

    return isinstance(native, spmatrix)


def _put_frame(writer: ArchiveWriter, frame: nw.DataFrame[Any]) -> None:
    writer.facts["data"] = str(frame.implementation)
    if writer.facts["data"] not in BACKENDS:
        raise UnsupportedModelError(
            "save: the rows must be an array or a pandas, polars or pyarrow data frame; got "
            f"{frame.implementation}. Explain frame.to_pandas(), or leave the rows out with data=False."
        )
    for column, series in enumerate(frame.iter_columns()):
        writer.put_values(f"data.{column}", _to_values(series))
    index: Any = nw.maybe_get_index(frame)
    named = index is not None and not (type(index).__name__ == "RangeIndex" and _counts(index))
    writer.facts["index"] = list(map(_label, index.names)) if named else None
    if named:
        labels = np.empty(len(index), dtype=object)
        labels[:] = [_plain(label) for label in index.tolist()]
        writer.put_values("index", labels)


def _to_values(series: nw.Series[Any]) -> NDArray[Any]:
    """Return the values of a column, as the table reads them, in an array of numbers or of objects."""
    if is_numeric(series.dtype):
        return numbers_of(series)
    objects = np.empty(len(series), dtype=object)
    objects[:] = series.to_list()
    return objects


def _counts(index: Any) -> bool:
    return index.start == 0 and index.step == 1 and index.name is None


def _label(name: Any) -> Any:
    return encode(_plain(name), "the name of the index")


def _plain(label: Any) -> Any:
    """Return an index label; a pandas timestamp becomes a Python datetime if no precision is lost."""
    if isinstance(label, tuple):
        return tuple(_plain(part) for part in label)
    if not isinstance(label, dt.datetime) or not hasattr(label, "to_pydatetime"):
        return label
    stamp: Any = label
    return stamp if stamp.tzinfo is not None or stamp.nanosecond else stamp.to_pydatetime()


def _take_table(stored: ArchiveReader, names: list[Hashable], n_clusters: int) -> Table:
    container = stored.choice("data", _CONTAINERS)
    categories = take_categories(stored, len(names))
    n = stored.lengths["n"]
    if container == "none":
        assigned = take_codes(stored, "assigned", n_clusters)
        return AbsentTable(
            None, n, len(names), names, np.dtype(np.float64), "explain", "X", assigned=assigned
        )
    if container == "array":
        native = stored.values("data", "nd")
    elif container in _SPARSE:
        native = _take_sparse(stored, container)
    else:
        native = _take_frame(stored, container, names)
    table = stored.make(
        "a table", open_table, native, where="explain", model_names=names, categories=categories
    )
    if (table.n_rows, table.n_features) != (n, len(names)):
        raise stored.error(f"the data must have {n} rows and {len(names)} features")
    return table


def _take_sparse(stored: ArchiveReader, container: str) -> Any:
    from scipy import sparse

    n, d = stored.lengths["n"], stored.lengths["d"]
    return getattr(sparse, container)(stored.sparse_parts("data", n, d), shape=(n, d))


def _take_frame(stored: ArchiveReader, library: str, names: list[Hashable]) -> Any:
    columns = [stored.values(f"data.{column}", "n") for column in range(len(names))]
    labels = stored.fact("index", list, type(None))
    if labels is not None and library != "pandas":
        raise stored.error(f"'index' must be null, because {library} frames have no index")
    if len(set(names)) < len(names) or (library != "pandas" and not all(type(n) is str for n in names)):
        raise stored.error("'feature_names' must be distinct column names")
    try:
        frame: Any = nw.from_dict(dict(zip(names, columns, strict=True)), backend=library).to_native()  # type: ignore[arg-type]
        if labels is not None:
            frame.index = _take_index(stored, stored.objects("index", labels))
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"load: the rows of {str(stored.path)!r} are a {library} frame, but {library} is not installed: "
            f"pip install {library}"
        ) from error
    except InvalidInputError:
        raise
    except Exception as error:  # each library raises its own errors
        raise stored.error(
            f"the data must be valid for a {library} frame ({type(error).__name__})"
        ) from error
    return frame


def _take_index(stored: ArchiveReader, names: list[Any]) -> Any:
    import pandas as pd

    labels = stored.values("index", "n").tolist()
    if len(names) > 1:
        # pandas pads tuples to the longest one: a single long tuple in a small file would fill the memory.
        if not all(type(label) is tuple and len(label) == len(names) for label in labels):
            raise stored.error(f"'index' must contain tuples of {len(names)} labels, one for each level")
        return pd.MultiIndex.from_tuples(labels, names=names)
    try:
        return pd.Index(labels, name=names[0], tupleize_cols=False)
    except UnicodeEncodeError:  # the text contains a lone surrogate, which only objects can hold
        return pd.Index(labels, dtype=object, name=names[0])


_LOADERS: dict[str, Callable[[ArchiveReader], Any]] = {
    "network": take_network,
    "explanation": _load_explanation,
    "segmentation": _load_segmentation,
}
