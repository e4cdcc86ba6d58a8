"""Networks and explanations as files: `save` and `load`."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Hashable, Sequence
from operator import attrgetter
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes
from whycluster.core.energies import Energy
from whycluster.core.errors import InvalidInputError, MissingDependencyError, UnsupportedModelError
from whycluster.core.rules import CONTRAST, RULES, SOFT
from whycluster.data.absent_table import AbsentTable
from whycluster.data.column_kinds import is_numeric
from whycluster.data.files import as_path, replacing
from whycluster.data.frame_table import numbers_of
from whycluster.data.frames import BACKENDS
from whycluster.data.labels import Labels
from whycluster.data.missing import is_missing
from whycluster.data.mixed_table import MixedTable
from whycluster.data.opening import open_table
from whycluster.data.sparse_table import SparseTable
from whycluster.data.table import Table
from whycluster.explanations.base import BaseExplanation
from whycluster.explanations.explanation import Explanation
from whycluster.explanations.fidelity import Fidelity
from whycluster.models.network import Network, TableNetwork
from whycluster.storage.archive import Draft, Stored, encode, read
from whycluster.storage.parameters import FINITE, NOT_NEGATIVE, RECIPES, SHARE, Parameter, Part, Values

_ENERGIES = {kind.__name__: kind for kind in RECIPES if issubclass(kind, Energy)}
_RESULTS = ("float64", "float32")
_SPARSE = ("csr_array", "csr_matrix")
_CONTAINERS = ("none", "array", *_SPARSE, *BACKENDS)
_CODES = Values("clusters", lambda codes: codes >= 0)
_SHARES = Values("from 0 to 1, or NaN", lambda a: ~((a < 0) | (a > 1)))
_INSTEAD = (
    "Save what stands behind the steps, in the features that they make: the network "
    "wc.neuralize(pipeline[-1]) (of MLlib: pipeline.stages[-1]), or the explanation "
    "wc.explain(pipeline[-1], pipeline[:-1].transform(X))."
)
_ARRAYS = "The arrays of an explanation can be saved as they are, with data=False."


def save(what: Network | Explanation, path: str | os.PathLike[str], *, data: bool = True) -> None:
    """Write a network or an explanation to a file, which `load` reads again.

    The file is of safetensors with JSON: numbers and text, and no code. What is loaded gives the same
    relevance, bit by bit. Needs safetensors: ``pip install "whycluster[save]"``.

    Parameters
    ----------
    what : a `Network`, or an `Explanation` of the rows of a table. Networks that cannot do without Python
        objects are refused: pipelines, deep clusterings, models that are compared with their own ``predict``
    path : the file; one that is there is replaced, at once or not at all
    data : of an explanation, whether its rows are saved too. Without them there are its arrays, `to_frame`,
        and `top` and `tell` without values, all of rows that are counted, since a pandas index goes with
        them; summaries, reports and all else need them. Explanations through pipelines can be saved without
        them only
    """
    target = as_path(path, "save")
    if target.is_dir():
        raise InvalidInputError(f"save: path must be the name of a file; {str(path)!r} is a folder.")
    if isinstance(what, Network):
        draft = _draft_network(what)
    elif isinstance(what, BaseExplanation):
        draft = _draft_explanation(what, data)
    else:
        raise _no_such(what)
    with replacing(target) as beside:
        draft.write(beside)


def _no_such(what: Any) -> UnsupportedModelError:
    kind = type(what).__name__
    lazy = "Compute it first, by its compute method." * (kind == "LazyExplanation")
    return UnsupportedModelError(
        f"save: what must be a Network or an Explanation; got {kind}. "
        f"{lazy or 'Of a fitted model, save the network: wc.neuralize(model).'}"
    )


def load(path: str | os.PathLike[str]) -> Any:
    """Read what `save` has written: a `Network` or an `Explanation`.

    Nothing in the file is run, imported or written; whatever is not as `save` makes it is an
    `InvalidInputError`, before anything is made of it that is larger than the file.

    Parameters
    ----------
    path : the file
    """
    stored = read(as_path(path, "load"))
    kind = stored.choice("kind", ("network", "explanation"))
    found = _load_network(stored) if kind == "network" else _load_explanation(stored)
    stored.close()
    return found


def _draft_network(network: Network) -> Draft:
    if network.is_deep:
        raise UnsupportedModelError(
            "save: a deep clustering has an encoder of torch. Save that as torch does, and the network of "
            "its head: wc.save(wc.neuralize(head), path)."
        )
    if not isinstance(network, TableNetwork):
        raise UnsupportedModelError(f"save: the steps of a pipeline are Python objects. {_INSTEAD}")
    if network.is_checked:
        raise UnsupportedModelError(
            "save: all rows that come to this network are compared with the model's own predict, which is "
            "code. Where it has centroids, their network can be saved, and is then not compared: "
            "wc.neuralize(model.cluster_centers_)."
        )
    draft = Draft("network")
    _put_energy(draft, network.energy)
    draft.put_values("labels", network.labels)
    draft.facts["feature_names"] = _coded_names(network.feature_names)
    draft.facts["categories"] = _coded_lists(network.categories)
    _put_fidelity(draft, network.fidelity)
    return draft


def digest(network: Network) -> str:
    """What tells a network from any other: a number made of all that would be saved of it."""
    return _draft_network(network).digest()


def _load_network(stored: Stored) -> Network:
    energy = _take_energy(stored)
    labels, names = stored.values("labels", "k"), stored.fact("feature_names", list, type(None))
    return stored.make(
        "a network",
        TableNetwork,
        energy,
        labels=labels,
        feature_names=None if names is None else stored.objects("feature_names", names),
        categories=_take_categories(stored, energy.n_features),
        fidelity=_take_fidelity(stored),
    )


def _draft_explanation(exp: BaseExplanation, data: bool) -> Draft:
    if type(exp) is not Explanation:
        raise UnsupportedModelError(
            "save: an explanation must be that of the rows of a table; got a "
            f"{type(exp).__name__}, which holds what made its features. Save its arrays with numpy.savez."
        )
    if data and exp.table.goes_through_steps:
        raise UnsupportedModelError(f"save: the steps of a pipeline are Python objects. {_INSTEAD} {_ARRAYS}")
    if not len(exp):
        raise InvalidInputError("save: an explanation must have at least one row; this has none.")
    draft = Draft("explanation")
    for name in ("relevance", "evidence"):
        draft.put(name, getattr(exp, name))
    draft.put("cluster", exp.cluster_codes, "int64")
    draft.put("competitor", exp.competitor_codes, "int64")
    draft.put_values("labels", exp.labels)
    draft.facts.update(
        beta=encode(exp.beta, "beta"),
        rule=exp.rule,
        threshold=encode(exp.threshold, "threshold"),
        targeted=bool(exp.is_targeted),
        feature_names=_coded_names(exp.feature_names),
        has_rows=exp.positions is not None,
        called=_coded(_names(exp), "the names of rows"),
    )
    if exp.positions is not None:
        draft.put("rows", exp.positions, "int64")
    _put_fidelity(draft, exp.fidelity)
    table = exp.unchanged_table("save") if data else AbsentTable.like(exp.table, exp.assigned_codes)
    _put_table(draft, table)
    if not isinstance(table, AbsentTable):  # without rows, there is nothing to compute the energies of
        _put_energy(draft, exp.energy)
    return draft


def _names(exp: Explanation) -> list[Any] | None:
    """What rows are called that do not say it themselves."""
    positions = range(len(exp)) if exp.positions is None else exp.positions.tolist()
    return None if exp.row_names is None else [exp.row_names[position] for position in positions]


def _load_explanation(stored: Stored) -> Explanation:
    relevance = _take(stored, "relevance", "nd", _RESULTS)
    evidence = _take(stored, "evidence", "n", [relevance.dtype.name])
    labels = stored.make("labels", Labels, stored.values("labels", "k")).names
    names = stored.objects("feature_names", stored.fact("feature_names", list))
    if len(names) != stored.lengths["d"]:
        raise stored.fault(f"there must be {stored.lengths['d']} feature_names; got {len(names)}")
    table = _take_table(stored, names, len(labels))
    absent = isinstance(table, AbsentTable)
    energy = _Unknown(len(labels), len(names)) if absent else _take_energy(stored)
    if len(labels) != energy.n_clusters:
        raise stored.fault(f"there must be {energy.n_clusters} labels; got {len(labels)}")
    return Explanation(
        relevance=relevance,
        evidence=evidence,
        labels=labels,
        fidelity=_take_fidelity(stored),
        cluster_codes=_take_codes(stored, "cluster", len(labels)),
        competitor_codes=_take_codes(stored, "competitor", len(labels)),
        energy=energy,
        table=table,
        is_targeted=stored.fact("targeted", bool),
        owns_data=absent,
        **_take_rows(stored),
        **_take_question(stored),
    )


def _take_rows(stored: Stored) -> dict[str, Any]:
    """Where the rows stood in the data that were explained, and what they are called there."""
    has_rows, called = stored.fact("has_rows", bool), stored.fact("called", list, type(None))
    rows = _take(stored, "rows", "n", ["int64"], NOT_NEGATIVE).astype(np.intp) if has_rows else None
    if called is None:
        return {"_rows": rows}
    positions, names = (
        range(stored.lengths["n"]) if rows is None else rows.tolist(),
        stored.objects("called", called),
    )
    if len(names) != len(positions):
        raise stored.fault(f"'called' must be {len(positions)} names; got {len(names)}")
    return {"_rows": rows, "_called": dict(zip(positions, names, strict=True))}


class _Unknown(Energy):
    """The place of energies that were not saved, since the rows were not."""

    scratch_width, offset = 0, None

    def __init__(self, n_clusters: int, n_features: int) -> None:
        self.n_clusters, self.n_features = n_clusters, n_features

    def energies(self, *_: Any) -> None:
        """Not known; the rows, which are read first, say so."""
        raise NotImplementedError

    def combine(self, *_: Any) -> None:
        """Not known either."""
        raise NotImplementedError

    def differentiate(self, *_: Any) -> None:
        """Not known either."""
        raise NotImplementedError


def _take_question(stored: Stored) -> dict[str, Any]:
    """By which rule, beta and threshold it was explained, if these go together."""
    rule = stored.choice("rule", (*RULES, SOFT))
    beta, threshold = (stored.object(name, stored.fact(name, *_NUMBER)) for name in ("beta", "threshold"))
    if (beta is None) != (rule == CONTRAST) or not (beta is None or (type(beta) is float and beta > 0)):
        raise stored.fault("'beta' must be a number above 0, or none for contrasts")
    if (threshold is None) != (rule != SOFT) or not (
        threshold is None or (type(threshold) is float and 0 < threshold < 1)
    ):
        raise stored.fault("'threshold' must be a probability, or none but for the rule 'soft'")
    return {"rule": rule, "beta": beta, "threshold": threshold}


_NUMBER = (float, dict, type(None))  # infinity is an object


def _put_energy(draft: Draft, energy: Energy) -> None:
    name = type(energy).__name__
    if _ENERGIES.get(name) is not type(energy):
        raise UnsupportedModelError(
            f"save: what an energy of the class {name} is made of is not known. Save its parameters with "
            "numpy.savez, and make it again of these."
        )
    draft.facts["energy"] = name
    _put_parameters(draft, "energy", energy)


def _put_parameters(draft: Draft, name: str, made: Any) -> None:
    for key, parameter in RECIPES[type(made)].parameters.items():
        value, place = attrgetter(parameter.path)(made), f"{name}.{key}"
        if isinstance(parameter, Part):
            _put_parameters(draft, place, value)
        elif value is not None:
            if not np.all(parameter.values.are(np.asarray(value))):
                raise InvalidInputError(
                    f"save: {place} must be {parameter.values.text}; the model has others."
                )
            draft.put(place, value, parameter.dtype)


def _take_energy(stored: Stored) -> Energy:
    kind = _ENERGIES[stored.choice("energy", tuple(_ENERGIES))]
    energy: Energy = _take_parameters(stored, "energy", kind)
    return energy


def _take_parameters(stored: Stored, name: str, kind: type) -> Any:
    recipe, values = RECIPES[kind], dict[str, Any]()
    for key, parameter in recipe.parameters.items():
        place = f"{name}.{key}"
        if isinstance(parameter, Part):
            values[key] = _take_parameters(stored, place, parameter.kind)
        elif stored.has(place) or not parameter.optional:
            values[key] = _take_parameter(stored, place, parameter)
    fault = recipe.fault(values)
    if fault is not None:
        raise stored.fault(f"{name!r}: {fault}")
    return stored.make(f"a {kind.__name__}", kind, **values)


def _take_parameter(stored: Stored, name: str, parameter: Parameter) -> Any:
    array = _take(stored, name, parameter.axes, [parameter.dtype], parameter.values)
    return array if parameter.axes else array.item()


def _take(
    stored: Stored, name: str, axes: str, dtypes: Sequence[str] = ("float64",), values: Values = FINITE
) -> NDArray[Any]:
    array = stored.array(name, dtypes, axes)
    if not np.all(values.are(array)):
        raise stored.fault(f"{name!r} must be {values.text}; it has others")
    return array


def _take_codes(stored: Stored, name: str, n_clusters: int) -> Codes:
    codes = _take(stored, name, "n", ["int64"], _CODES)
    if codes.max() >= n_clusters:
        raise stored.fault(f"{name!r} must be below {n_clusters}, the number of clusters")
    return codes.astype(np.intp)


def _put_fidelity(draft: Draft, fidelity: Fidelity | None) -> None:
    draft.facts["fidelity"] = fidelity is not None
    if fidelity is None:
        return
    draft.put_values("fidelity.labels", fidelity.labels)
    draft.put("fidelity.size", fidelity.size, "int64")
    for name in ("in_sample", "cross_validated"):
        draft.put(f"fidelity.{name}", getattr(fidelity, name), "float64")
        draft.put(f"fidelity.{name}_per_cluster", getattr(fidelity, f"{name}_per_cluster"), "float64")


def _take_fidelity(stored: Stored) -> Fidelity | None:
    if not stored.fact("fidelity", bool):
        return None
    return Fidelity(
        in_sample=_take(stored, "fidelity.in_sample", "", values=SHARE).item(),
        cross_validated=_take(stored, "fidelity.cross_validated", "", values=SHARE).item(),
        labels=stored.values("fidelity.labels", "f"),
        size=_take(stored, "fidelity.size", "f", ["int64"], NOT_NEGATIVE).astype(np.intp),
        in_sample_per_cluster=_take(stored, "fidelity.in_sample_per_cluster", "f", values=_SHARES),
        cross_validated_per_cluster=_take(
            stored, "fidelity.cross_validated_per_cluster", "f", values=_SHARES
        ),
    )


def _coded(values: Sequence[Any] | None, name: str) -> list[Any] | None:
    return None if values is None else [encode(value, name) for value in values]


def _coded_names(names: Sequence[Any] | None) -> list[Any] | None:
    if names is not None and any(map(is_missing, set(names) - {None})):  # NaN, which is not even itself
        raise UnsupportedModelError(
            "save: feature_names must be names; one of them is missing (NaN). Rename the column first."
        )
    return _coded(names, "feature_names")


def _coded_lists(categories: Sequence[Sequence[Any] | None] | None) -> list[Any] | None:
    return None if categories is None else [_coded(values, "categories") for values in categories]


def _take_categories(stored: Stored, n_features: int) -> list[list[Any] | None] | None:
    coded = stored.fact("categories", list, type(None))
    if coded is None:
        return None
    if len(coded) != n_features:
        raise stored.fault(f"'categories' must be of {n_features} features; got {len(coded)}")
    return [None if values is None else stored.objects("categories", values) for values in coded]


def _put_table(draft: Draft, table: Table) -> None:
    """The rows, and what holds them."""
    draft.facts["categories"] = None
    if isinstance(table, MixedTable):
        draft.facts["categories"] = _coded_lists([table.categories.get(i) for i in range(table.n_features)])
    if isinstance(table, AbsentTable):
        draft.facts["data"] = "none"
        draft.put("assigned", table.assigned, "int64")
    elif isinstance(table, SparseTable):
        draft.facts["data"] = _SPARSE[_is_matrix(table.native)]
        draft.put_values("data", table.native.data)
        draft.put("data.indices", table.native.indices, "int64")
        draft.put("data.starts", table.native.indptr, "int64")
    elif isinstance(table.native, np.ndarray):
        draft.facts["data"] = "array"
        draft.put_values("data", table.native)
    else:
        _put_frame(draft, nw.from_native(table.native, eager_only=True))


def _is_matrix(native: Any) -> bool:
    """Whether a sparse matrix is of the old kind."""
    from scipy.sparse import spmatrix

    return isinstance(native, spmatrix)


def _put_frame(draft: Draft, frame: nw.DataFrame[Any]) -> None:
    draft.facts["data"] = str(frame.implementation)
    if draft.facts["data"] not in BACKENDS:
        raise UnsupportedModelError(
            f"save: the rows must be an array or a frame of {', '.join(BACKENDS)}; got "
            f"{frame.implementation}. Explain frame.to_pandas(), or leave them out with data=False."
        )
    for column, series in enumerate(frame.iter_columns()):
        draft.put_values(f"data.{column}", _to_values(series))
    index: Any = nw.maybe_get_index(frame)
    named = index is not None and not (type(index).__name__ == "RangeIndex" and _counts(index))
    draft.facts["index"] = list(map(_label, index.names)) if named else None
    if named:
        labels = np.empty(len(index), dtype=object)
        labels[:] = [_plain(label) for label in index.tolist()]
        draft.put_values("index", labels)


def _to_values(series: nw.Series[Any]) -> NDArray[Any]:
    """A column as the table reads it: numbers as such, all else as objects."""
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
    """A label of an index, without what only pandas knows if it can do without: moments of no time zone."""
    if isinstance(label, tuple):
        return tuple(_plain(part) for part in label)
    if not isinstance(label, dt.datetime) or not hasattr(label, "to_pydatetime"):
        return label
    moment: Any = label
    return moment if moment.tzinfo is not None or moment.nanosecond else moment.to_pydatetime()


def _take_table(stored: Stored, names: list[Hashable], n_clusters: int) -> Table:
    container = stored.choice("data", _CONTAINERS)
    categories = _take_categories(stored, len(names))
    n = stored.lengths["n"]
    if container == "none":
        assigned = _take_codes(stored, "assigned", n_clusters)
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
        raise stored.fault(f"the data must be of {n} rows and {len(names)} features")
    return table


def _take_sparse(stored: Stored, container: str) -> Any:
    """Every index is looked at: what sums rows up later would follow it anywhere."""
    from scipy import sparse

    values = stored.values("data", "?")
    if values.dtype == np.float16:  # which SciPy does not know
        raise stored.fault("'data' of a sparse matrix must be of another dtype than float16")
    indices, starts = (stored.array(f"data.{name}", ["int64"], "?") for name in ("indices", "starts"))
    n, d = stored.lengths["n"], stored.lengths["d"]
    steps = len(starts) == n + 1 and starts[0] == 0 and starts[-1] == len(values)
    if not steps or (starts[1:] < starts[:-1]).any() or len(indices) != len(values):
        raise stored.fault("'data' must say where each row begins")
    if ((indices < 0) | (indices >= d)).any() or values.dtype.kind not in "biuf":
        raise stored.fault(f"'data' must be numbers of {d} features")
    return getattr(sparse, container)((values, indices, starts), shape=(n, d))


def _take_frame(stored: Stored, library: str, names: list[Hashable]) -> Any:
    columns = [stored.values(f"data.{column}", "n") for column in range(len(names))]
    labels = stored.fact("index", list, type(None))
    if labels is not None and library != "pandas":
        raise stored.fault(f"'index' must be none, since frames of {library} have none")
    if len(set(names)) < len(names) or (library != "pandas" and not all(type(n) is str for n in names)):
        raise stored.fault("'feature_names' must be different names of columns")
    try:
        frame: Any = nw.from_dict(dict(zip(names, columns, strict=True)), backend=library).to_native()  # type: ignore[arg-type]
        if labels is not None:
            frame.index = _take_index(stored, stored.objects("index", labels))
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"load: the rows of {str(stored.path)!r} are a frame of {library}, which is not installed: "
            f"pip install {library}"
        ) from error
    except InvalidInputError:
        raise
    except Exception as error:  # each library has errors of its own for what it cannot hold
        raise stored.fault(f"the data must make a frame of {library} ({type(error).__name__})") from error
    return frame


def _take_index(stored: Stored, names: list[Any]) -> Any:
    import pandas as pd

    labels = stored.values("index", "n").tolist()
    if len(names) > 1:
        return pd.MultiIndex.from_tuples(labels, names=names)
    try:
        return pd.Index(labels, name=names[0], tupleize_cols=False)
    except UnicodeEncodeError:  # half a character, which only objects may hold
        return pd.Index(labels, dtype=object, name=names[0])
