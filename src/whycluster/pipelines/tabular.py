"""Cluster tables with numeric, categorical and date columns, using a scikit-learn pipeline.

The types of the columns determine the steps. All steps are scikit-learn's own, except for five functions that
read, fill and weight columns one by one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import sklearn
from sklearn.base import clone
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.fixes import parse_version
from threadpoolctl import ThreadpoolController

from whycluster.core import blocks
from whycluster.core.arrays import Floats
from whycluster.core.errors import InvalidInputError, MissingDependencyError
from whycluster.data.arrays import is_real
from whycluster.data.column_checks import LIKE_IDENTIFIER, ClassifiedColumns, classify_columns
from whycluster.data.columns import as_days, as_numbers, as_text
from whycluster.data.elementwise import elementwise
from whycluster.data.progress import Progress
from whycluster.data.validation import check_integer
from whycluster.data.warnings import ColumnWarning, level_of_the_caller
from whycluster.pipelines.steps import READS_NAMES_OF_POLARS

_CURVE_ROWS = 20_000  # maximum number of rows used to choose the number of clusters
_CURVE_VALUES = 1_000_000  # tables with more than 50 encoded columns use fewer rows, ...
_FEWEST_CURVE_ROWS = 5_000  # ... but at least this many
_CURVE_STARTS = 3
_STARTS = 10
_MANY_ROWS = 100_000  # more rows are clustered in batches
_SMALL_FIT = 20_000_000  # rows x columns x clusters up to which k-means does not gain from threads
_MISSING = "missing"  # the category of missing values
_MOST_CLUSTERS, _CATEGORY_WEIGHT, _MOST_CATEGORIES = 20, 1.0, 50  # defaults


def pipeline(
    frame: Any,
    n_clusters: int | None = None,
    *,
    model: Any = None,
    max_clusters: int = _MOST_CLUSTERS,
    category_weight: float = _CATEGORY_WEIGHT,
    max_categories: int | None = _MOST_CATEGORIES,
    keep: Sequence[Hashable] = (),
    random_state: int | np.random.RandomState | None = 0,
) -> Pipeline:
    """Cluster a table with numeric, categorical and date columns.

    A column's kind depends on its data type, or on its values if the type is object. Columns are encoded so
    that the following differences carry equal weight: one standard deviation in a numeric column, a different
    category, and a missing value.

    - *numbers*, including booleans, are standardized. Missing values are replaced by the median and marked in
      an extra column of 0 and 1.
    - *dates*, times and durations become days (since 1970, in UTC) and are then treated as numbers. Text is
      read as dates if every value that is not missing is an ISO date, such as "2024-03-01" or
      "2024-03-01 12:30".
    - *categories* (text, categoricals, enums, and text mixed with numbers) become one column per category,
      with the values 0 and sqrt(1/2), since a change of category changes two of these columns. Missing values
      become a category, ``"missing"``.

    Some columns are left out, with a `ColumnWarning`:

    - columns with a single distinct value, or with no values at all;
    - columns of other types, such as lists, structs or bytes;
    - columns that look like identifiers. If a column has at least ten values, text looks like an identifier
      if more than 90% of the values are distinct, and integers look like identifiers if they are all distinct
      and fill at least 90% of the range from the smallest to the largest. With any number of values, integers
      look like identifiers if the column's name begins or ends with the word id, uuid or guid (``id``,
      ``customer_id``, ``PassengerId``), or is ``index`` or ``Unnamed: 0``. Floats and dates never look like
      identifiers.

    Parameters
    ----------
    frame : a pandas or polars DataFrame, or a pyarrow Table. A Table is converted to pandas, or to polars if
        pandas is not installed, since older versions of scikit-learn do not accept it in ``predict``. Before
        version 1.9, scikit-learn does not see the column names of polars 2, and ``predict`` takes the columns
        in the order in which they were fitted. `explain` checks the names with all versions.
    n_clusters : number of clusters. None chooses the elbow of the inertia as a function of the number of
        clusters (1, 2, ..., ``max_clusters``), found by kneedle on at most 20,000 rows (fewer if there are
        more than 50 encoded columns, but not fewer than 5,000). If there is no elbow, None chooses the number
        at which the curve is farthest below the line between its ends, but at least 2.
    model : unfitted clustering estimator to use instead of ``KMeans`` (or ``MiniBatchKMeans``, for more than
        100,000 rows). The estimator sets its own number of clusters and ``random_state``, so ``n_clusters``
        must be None. A copy of the estimator is fitted.
    max_clusters : largest number of clusters to try, limited by the number of distinct rows
    category_weight : weight of one change of category, in standard deviations
    max_categories : largest number of categories per column; in columns with more, rare categories are merged
        into one. None keeps all categories. A category that first appears in ``predict`` is treated like the
        merged rare categories. If no categories were merged, it is treated as belonging to no category, and
        its squared distance to each category is half the squared distance between two categories.
    keep : names of columns to use even if they look like identifiers
    random_state : seed or random generator for k-means and for the sample of rows

    Returns
    -------
    pipeline : fitted ``Pipeline`` with the steps "columns", a ``ColumnTransformer`` with the branches
        "numbers", "dates" and "categories" (those that are needed), and "clusters", the model. It provides
        two more attributes, which ``clone`` does not copy: ``left_out_``, the reason for each column that was
        left out, and ``inertias_``, the inertia for each number of clusters (empty if ``n_clusters`` was
        given).

    Examples
    --------
    >>> import pandas as pd
    >>> import whycluster as wc
    >>> frame = pd.DataFrame({"age": [20, 21, 60, None], "city": ["Rome", "Rome", "Oslo", "Oslo"]})
    >>> pipe = wc.tabular.pipeline(frame, n_clusters=2)
    >>> labels = pipe.predict(frame)
    >>> bool(labels[0] == labels[1] != labels[2])
    True
    """
    where = "pipeline"
    _check_model(model, n_clusters)
    _check_encoding(category_weight, max_categories, where)
    check_integer(max_clusters, 2, where, "max_clusters")
    if n_clusters is not None:
        check_integer(n_clusters, 2, where, "n_clusters", "None or ")
    columns = classify_columns(frame, where, keep)
    warn_of_columns(columns)
    encoding = category_weight, max_categories
    return _clustered(columns, encoding, n_clusters, model, max_clusters, random_state)


def cluster_columns(
    classified: ClassifiedColumns,
    n_clusters: int | None,
    random_state: int | np.random.RandomState | None,
) -> Pipeline:
    """Cluster columns that are already classified, with the defaults of `pipeline`."""
    encoding = _CATEGORY_WEIGHT, _MOST_CATEGORIES
    return _clustered(classified, encoding, n_clusters, None, _MOST_CLUSTERS, random_state)


def _clustered(
    classified: ClassifiedColumns,
    encoding: tuple[float, int | None],
    n_clusters: int | None,
    model: Any,
    max_clusters: int,
    random_state: int | np.random.RandomState | None,
) -> Pipeline:
    find_elbow = _load_kneedle() if model is None and n_clusters is None else None
    columns, X = encode(classified, *encoding)
    inertias: dict[int, float] = {}
    small = False
    if find_elbow is not None:
        inertias = _inertias(np.asarray(X), max_clusters, random_state)
        n_clusters = _elbow(inertias, find_elbow)
    if model is None:
        _check_different(np.asarray(X), n_clusters, classified.where)
        many = len(X) > _MANY_ROWS
        kind, n_init = (MiniBatchKMeans, _CURVE_STARTS) if many else (KMeans, _STARTS)
        model = kind(n_clusters, n_init=n_init, random_state=random_state)
        small = not many and np.size(X) * model.n_clusters <= _SMALL_FIT
    with _one_thread() if small else nullcontext():
        result = Pipeline([("columns", columns), ("clusters", clone(model).fit(X))])
    result.left_out_, result.inertias_ = columns.left_out_, inertias
    return result


def encoder(
    frame: Any,
    *,
    category_weight: float = _CATEGORY_WEIGHT,
    max_categories: int | None = _MOST_CATEGORIES,
    keep: Sequence[Hashable] = (),
) -> ColumnTransformer:
    """Return the first step of `pipeline`, fitted to a frame. It encodes columns as numbers of equal weight.

    Parameters
    ----------
    frame, category_weight, max_categories, keep : as in `pipeline`

    Returns
    -------
    encoder : fitted ``ColumnTransformer``, with the attribute ``left_out_``
    """
    where = "encoder"
    _check_encoding(category_weight, max_categories, where)
    columns = classify_columns(frame, where, keep)
    warn_of_columns(columns)
    return encode(columns, category_weight, max_categories)[0]


@elementwise
def weigh(X: Any, weight: float) -> Any:
    """Multiply every column by a weight."""
    return X * weight


def median(values: Floats) -> float:
    """Return the median of a column, or of every n-th value in long columns. Without values, return 0."""
    some = values[:: 1 + len(values) // _MANY_ROWS]
    return float(np.median(some)) if len(some) else 0.0


# The strategy "median" sorts all columns together with their masks. Passing a function, which scikit-learn
# 1.5 and later accept, takes a tenth of the time.
_MEDIAN: Any = median if parse_version(sklearn.__version__) >= parse_version("1.5") else "median"


def encode(
    columns: ClassifiedColumns,
    category_weight: float = _CATEGORY_WEIGHT,
    max_categories: int | None = _MOST_CATEGORIES,
) -> tuple[ColumnTransformer, Any]:
    """Return the fitted encoder and the encoded rows."""
    branches, readings = _branches(category_weight, max_categories), columns.readings
    if not READS_NAMES_OF_POLARS:
        readings = _by_position(columns)
    result = ColumnTransformer(
        [(name, branches[name], readings[name]) for name in branches if name in readings]
    )
    X = result.fit_transform(columns.frame)
    if not hasattr(result, "feature_names_in_") and not hasattr(columns.frame, "iloc"):
        result.feature_names_in_ = np.array(columns.frame.columns, dtype=object)
    result.left_out_ = columns.left_out
    return result, X


def _by_position(columns: ClassifiedColumns) -> dict[str, list[Any]]:
    """Return the readings with the positions of columns instead of their names."""
    position = {name: i for i, name in enumerate(columns.frame.columns)}
    return {
        kind: [position[column] if isinstance(column, str) else column for column in chosen]
        for kind, chosen in columns.readings.items()
    }


def _branches(category_weight: float, max_categories: int | None) -> dict[str, Pipeline]:
    # A change of category changes two columns by this weight; the distance is then category_weight.
    weight = float(category_weight) / 2**0.5
    rare = {"handle_unknown": "infrequent_if_exist", "max_categories": max_categories}
    return {
        "numbers": _standardized(as_numbers),
        "dates": _standardized(as_days),
        "categories": Pipeline(
            [
                ("read", FunctionTransformer(as_text, feature_names_out="one-to-one")),
                ("fill", SimpleImputer(strategy="constant", fill_value=_MISSING, keep_empty_features=True)),
                ("encode", OneHotEncoder(sparse_output=False, **rare)),
                (
                    "weigh",
                    FunctionTransformer(weigh, kw_args={"weight": weight}, feature_names_out="one-to-one"),
                ),
            ]
        ),
    }


def _standardized(reader: Callable[[Any], Floats]) -> Pipeline:
    """Scale before filling, so that filled values do not shrink the deviation and indicators stay 0 and 1."""
    return Pipeline(
        [
            ("read", FunctionTransformer(reader, feature_names_out="one-to-one")),
            ("scale", StandardScaler()),
            ("fill", SimpleImputer(strategy=_MEDIAN, add_indicator=True, keep_empty_features=True)),
        ]
    )


def warn_of_columns(columns: ClassifiedColumns) -> None:
    """Warn about columns that are left out and dates stored as text; raise an error if no column is left."""
    where, left_out = columns.where, columns.left_out
    listed = "; ".join(f"{name!r}: {reason}" for name, reason in left_out.items())
    if not columns.readings:
        raise InvalidInputError(
            f"{where}: frame must contain at least one column to use for clustering; none is left. {listed}."
        )
    messages = []
    if left_out:
        count = "1 column is" if len(left_out) == 1 else f"{len(left_out)} columns are"
        named = any(reason.startswith(LIKE_IDENTIFIER) for reason in left_out.values())
        keeps = "keep" if where != "explain" else "the keep of wc.tabular.encoder, before a wc.Surrogate"
        advice = f" To use columns that look like identifiers, list them in {keeps}." if named else ""
        messages.append(f"{where}: {count} left out. {listed}.{advice}")
    if columns.text_dates:
        holds, them = ("holds", "it") if len(columns.text_dates) == 1 else ("hold", "them")
        messages.append(
            f"{where}: {', '.join(map(repr, columns.text_dates))} {holds} dates as text that are not all "
            f"written as 2024-03-01, so each distinct value is treated as a category. Convert {them} first, "
            "for example with pandas.to_datetime."
        )
    for message in messages:
        warnings.warn(message, ColumnWarning, stacklevel=level_of_the_caller())


def _check_encoding(category_weight: Any, max_categories: Any, where: str) -> None:
    if not is_real(category_weight) or not 0 < category_weight < np.inf:
        raise InvalidInputError(
            f"{where}: category_weight must be a number above 0; got {category_weight!r}."
        )
    if max_categories is not None:
        check_integer(max_categories, 2, where, "max_categories", "None or ")


def _check_model(model: Any, n_clusters: Any) -> None:
    if model is None:
        return
    if isinstance(model, type) or not (hasattr(model, "fit") and hasattr(model, "get_params")):
        raise InvalidInputError(
            f"pipeline: model must be a scikit-learn estimator, such as KMeans(3); got {model!r}."
        )
    if n_clusters is not None:
        raise InvalidInputError(
            f"pipeline: n_clusters must be None if a model is given; got {n_clusters}. Set the number of "
            "clusters in the model."
        )


def _check_different(X: Floats, n_clusters: Any, where: str) -> None:
    """Raise an error if there are fewer distinct rows than clusters."""
    different = _count_different(X, n_clusters)
    if different < n_clusters:
        raise InvalidInputError(
            f"{where}: n_clusters must be at most {different}, the number of distinct rows; got {n_clusters}."
        )


def _count_different(X: Floats, enough: int) -> int:
    """Count the distinct rows, or only those among the first rows if these are enough."""
    n_rows = 1000
    while (different := len(np.unique(X[:n_rows], axis=0))) < enough and n_rows < len(X):
        n_rows *= 10
    return different


def _load_kneedle() -> Callable[[Floats, Floats], int | None]:
    try:
        from kneed import KneeLocator
    except ImportError as error:
        raise MissingDependencyError(
            'choosing the number of clusters needs kneed: pip install "whycluster[tabular]", or set '
            "n_clusters"
        ) from error

    def find(n_clusters: Floats, inertias: Floats) -> int | None:
        with warnings.catch_warnings():  # old versions warn if there is no elbow
            warnings.simplefilter("ignore")
            elbow = KneeLocator(n_clusters, inertias, curve="convex", direction="decreasing").elbow
        return None if elbow is None else int(elbow)

    return find


def _openmp() -> Any:
    return ThreadpoolController().select(user_api="openmp")


@contextmanager
def _one_thread() -> Iterator[None]:
    """Run k-means on the calling thread.

    Otherwise, its threads wait for each other after every iteration. In small fits, this can take 40 times
    as long as the iterations if other processes use the cores, and rounding depends on the threads' timing.
    """
    with blocks.single_threaded(), _openmp().limit(limits=1):
        yield


def _inertias(X: Floats, max_clusters: int, random_state: Any) -> dict[int, float]:
    """Return the inertia for every number of clusters, starting with 1 so that an elbow at 2 can be found."""
    X = _curve_sample(X, random_state)
    if isinstance(random_state, np.random.RandomState):  # threads would use it in any order
        random_state = random_state.randint(np.iinfo(np.int32).max)
    sizes = range(2, min(max_clusters, _count_different(X, max_clusters)) + 1)
    found: dict[int, float] = {}
    openmp = _openmp()
    with Progress("choosing the number of clusters", len(sizes)) as bar:

        def fit(task: int) -> None:
            size = sizes[-1 - task]  # the largest takes longest and comes first
            with openmp.limit(limits=1):  # only affects this thread
                model = KMeans(size, n_init=_CURVE_STARTS, random_state=random_state).fit(X)
            found[size] = float(model.inertia_)
            bar.step()

        blocks.each(fit, len(sizes))
    return {1: float(np.square(X - X.mean(axis=0)).sum())} | {size: found[size] for size in sizes}


def _curve_sample(X: Floats, random_state: Any) -> Floats:
    n_rows = min(_CURVE_ROWS, max(_FEWEST_CURVE_ROWS, _CURVE_VALUES // X.shape[1]))
    if len(X) <= n_rows:
        return X
    return np.asarray(X[check_random_state(random_state).choice(len(X), n_rows, replace=False)])


def _elbow(inertias: dict[int, float], find: Callable[[Floats, Floats], int | None]) -> int:
    sizes = np.array(list(inertias), dtype=np.float64)
    curve = np.array(list(inertias.values()))
    if len(sizes) < 3 or curve[-1] == curve[0]:
        return 2
    found = find(sizes, curve)
    if found is None:  # farthest below the line between the ends
        line = np.interp(sizes, sizes[[0, -1]], curve[[0, -1]])
        found = int(sizes[np.argmax(line - curve)])
    return max(2, found)
