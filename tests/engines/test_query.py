"""The same options at every way in, and the same message if one is invalid.

The tests of AnnData, Spark and the command do the same with the queries in ``tests/queries.py``.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.neighbors import NearestCentroid

import whycluster as wc
from tests.optional import optional
from tests.queries import FOR_ALL_ROWS, INVALID

if TYPE_CHECKING:
    import dask.array as da
    import dask.dataframe as dd
    import pandas as pd
else:
    pd = optional("pandas")
    da, dd = optional("dask.array"), optional("dask.dataframe")

RNG = np.random.default_rng(0)
GROUPS = np.repeat(["a", "b", "c"], 20)
ROWS = RNG.normal(size=(60, 4)) + 6.0 * (GROUPS[:, None] == ["a", "b", "c", "d"])
FRAME = pd.DataFrame(ROWS, columns=["w", "x", "y", "z"])
MODEL = NearestCentroid().fit(ROWS, GROUPS)


def from_files(folder: Path, **options: Any) -> Any:
    FRAME.to_csv(folder / "rows.csv", index=False)
    return wc.explain_dataset(MODEL, folder / "rows.csv", folder / "out", **options)


WAYS: dict[str, Callable[..., Any]] = {
    "explain": lambda _, **options: wc.explain(MODEL, ROWS, **options),
    "explain of labels": lambda _, **options: wc.explain(GROUPS, ROWS, **options),
    "Network.explain": lambda _, **options: wc.neuralize(MODEL).explain(ROWS, **options),
    "explain of a Dask array": lambda _, **options: wc.explain(MODEL, da.from_array(ROWS), **options),
    "explain of a Dask frame": lambda _, **options: wc.explain(
        MODEL, dd.from_pandas(FRAME, npartitions=2), **options
    ),
    "explain_dataset": from_files,
}
IN_PARTS = ["explain of a Dask array", "explain of a Dask frame", "explain_dataset"]


# parts take one cluster for all rows
REFUSED = [(way, *each) for way in WAYS for each in (*INVALID, *(FOR_ALL_ROWS if way in IN_PARTS else ()))]


@pytest.mark.parametrize(("way", "options", "message"), REFUSED, ids=str)
def test_an_invalid_option_has_the_same_message_everywhere(
    way: str, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(wc.InvalidInputError) as caught:
        WAYS[way](tmp_path, **options)
    caller = "explain_dataset" if way == "explain_dataset" else "explain"
    assert str(caught.value) == f"{caller}: {message}"


@pytest.mark.parametrize("way", WAYS)
def test_an_unknown_option_is_an_error_everywhere(way: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'betta'"):
        WAYS[way](tmp_path, betta=1.0)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "options",
    [{"target": "a"}, {"against": "b"}, {"beta": 0.5}, {"rule": "sequential"}, {"rule": "contrast"}],
    ids=str,
)
def test_valid_options_are_accepted_everywhere(way: str, options: dict[str, Any], tmp_path: Path) -> None:
    WAYS[way](tmp_path, **options)
