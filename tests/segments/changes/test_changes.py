"""Changes between two months: frames, rows and every sentence, derived again from the raw tables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.mixture import GaussianMixture

import whycluster as wc
from tests.optional import optional
from tests.segments.changes.months import NAMES, customers, kept, next_month, segmentation

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
else:
    pd, pl, pa = optional("pandas"), optional("polars"), optional("pyarrow")

COLUMNS = ["age", "spend", "visits", "city"]


@pytest.fixture(scope="module")
def before() -> Any:
    return customers()


@pytest.fixture(scope="module")
def after(before: Any) -> Any:
    return next_month(before)


@pytest.fixture(scope="module")
def seg(before: Any) -> wc.Segmentation:
    return segmentation(before, names=NAMES)


@pytest.fixture(scope="module")
def refit(after: Any) -> wc.Segmentation:
    return segmentation(after, 4)


@pytest.fixture(scope="module")
def one(seg: wc.Segmentation, before: Any, after: Any) -> wc.Changes:
    return wc.changes(seg, before, after, on="CustomerID")


@pytest.fixture(scope="module")
def two(seg: wc.Segmentation, refit: wc.Segmentation, before: Any, after: Any) -> wc.Changes:
    return wc.changes(seg, refit, before, after, on="CustomerID")


def clusters(seg: wc.Segmentation, frame: Any) -> Any:
    """Return the cluster of each id, with the segmentation's own labels."""
    return pd.Series(seg.model.predict(frame[COLUMNS]), index=frame["CustomerID"]).map(
        dict(enumerate(seg.labels.tolist()))
    )


def joined(changes: wc.Changes, old: wc.Segmentation, new: wc.Segmentation, before: Any, after: Any) -> Any:
    """Return the clusters of all ids before and after, under the labels of the result."""
    sides = clusters(old, before).map(str), clusters(new, after).map(changes.new_labels).map(str)
    both = pd.concat([side.astype(object) for side in sides], axis=1, keys=["from", "to"])
    both["status"] = np.select(
        [both["from"].isna(), both["to"].isna(), both["from"] == both["to"]],
        ["new", "gone", "stayed"],
        "moved",
    )
    return both


@pytest.fixture(scope="module", params=[False, True], ids=["one segmentation", "a segmentation fitted again"])
def case(request: pytest.FixtureRequest, before: Any, after: Any) -> tuple[bool, wc.Changes, Any]:
    """Return whether there is a second segmentation, the changes, and the clusters of all ids."""
    one, two, seg, refit = (request.getfixturevalue(name) for name in ("one", "two", "seg", "refit"))
    changes, new = (two, refit) if request.param else (one, seg)
    return request.param, changes, joined(changes, seg, new, before, after)


def test_the_frame_has_every_row(case: tuple[bool, wc.Changes, Any], before: Any, after: Any) -> None:
    is_refit, changes, expected = case
    found = changes.to_frame().set_index("CustomerID")
    new_ids = [i for i in after["CustomerID"] if i not in set(before["CustomerID"])]
    assert found.index.tolist() == [*before["CustomerID"], *new_ids]
    for name in ("status", "from", "to"):
        shown = [str(v) if v == v and v is not None else None for v in expected.loc[found.index, name]]
        assert [v if isinstance(v, str) else None for v in found[name]] == shown
    moved = found["status"] == "moved"
    assert moved.sum() > 10
    assert found.loc[~moved, [*COLUMNS, "residual"]].isna().all(axis=None)
    change = found["evidence_after"] - found["evidence_before"]
    assert (found["evidence_before"][moved] <= 0).all()
    assert (found["evidence_after"][moved] >= 0).all()
    np.testing.assert_allclose(found[[*COLUMNS, "residual"]].sum(axis=1)[moved], change[moved], atol=1e-9)
    if is_refit:
        np.testing.assert_allclose(
            (found["from_data"] + found["from_model"])[moved], change[moved], atol=1e-9
        )


def test_flows_and_sizes_are_counts(one: wc.Changes, seg: wc.Segmentation, before: Any, after: Any) -> None:
    rows = joined(one, seg, seg, before, after)
    flows = one.flows()
    assert flows["rows"].tolist() == sorted(flows["rows"], reverse=True)
    assert flows["rows"].sum() == len(rows)
    for flow in flows.itertuples():
        source, target = flow[1], flow[2]
        same = rows["from"].isna() if pd.isna(source) else rows["from"] == source
        chosen = same & (rows["to"].isna() if pd.isna(target) else rows["to"] == target)
        assert flow.rows == chosen.sum()
        assert set(rows["status"][chosen]) == {flow.status}
        assert flow.share == pytest.approx(flow.rows / same.sum())
    sizes = one.sizes().set_index("cluster")
    for name in NAMES.values():
        was, is_ = rows["from"] == name, rows["to"] == name
        expected = {
            "before": was.sum(),
            "after": is_.sum(),
            "stayed": (was & is_).sum(),
            "moved_out": (was & (rows["status"] == "moved")).sum(),
            "moved_in": (is_ & (rows["status"] == "moved")).sum(),
            "gone": (was & (rows["status"] == "gone")).sum(),
            "new": (is_ & (rows["status"] == "new")).sum(),
        }
        assert sizes.loc[name].to_dict() == expected


def test_drivers_are_means_over_the_rows_of_a_move(one: wc.Changes) -> None:
    rows, drivers = one.to_frame(), one.drivers()
    flows = one.flows()
    moves = flows[flows["status"] == "moved"]
    for _, flow in moves.iterrows():
        chosen = rows[(rows["from"] == flow["from"]) & (rows["to"] == flow["to"])]
        means = chosen[COLUMNS].mean()
        wanted = means[means > 0].sort_values(ascending=False)
        found = drivers[(drivers["from"] == flow["from"]) & (drivers["to"] == flow["to"])]
        assert found["column"].tolist() == wanted.index.tolist()
        np.testing.assert_allclose(found["contribution"], wanted)
        first = chosen[COLUMNS].idxmax(axis=1)
        assert found["first_in"].tolist() == [(first == name).sum() for name in wanted.index]
        assert flow["driver"] == wanted.index[0]
        assert flow["contribution"] == pytest.approx(wanted.iloc[0])
        change = chosen["evidence_after"] - chosen["evidence_before"]
        assert flow["change"] == pytest.approx(change.mean())
    assert flows[flows["status"] != "moved"]["driver"].isna().all()
    assert drivers.iloc[0]["column"] == "spend"


def three(number: float) -> str:
    return f"{number:.3g}"


def test_a_row_that_moved_is_described(one: wc.Changes, before: Any, after: Any) -> None:
    rows = one.to_frame().set_index("CustomerID")
    moved = rows[rows["status"] == "moved"]
    for name, line in moved.iterrows():
        text = one.row(name).describe(n_columns=2)
        flat = re.sub(r"\s+", " ", text)
        change = line["evidence_after"] - line["evidence_before"]
        assert flat.startswith(
            f"CustomerID {name} moved from cluster {line['from']} to cluster {line['to']}: the evidence for "
            f"cluster {line['to']} against cluster {line['from']} changed by {three(change)}, from "
            f"{three(line['evidence_before'])} to {three(line['evidence_after'])}. column before after "
            "contribution "
        )
        listed = [each.split() for each in text.splitlines()[text.splitlines().index(_rule(text)) + 1 :]]
        strongest = line[COLUMNS].astype(float).abs().sort_values(ascending=False, kind="stable")
        wanted = [column for column in strongest.index[:2] if strongest[column] > 0]
        assert [cells[0] for cells in listed[: len(wanted)]] == wanted
        for cells in listed[: len(wanted)]:
            values = [month.set_index("CustomerID").loc[name, cells[0]] for month in (before, after)]
            for shown, value in zip(cells[1:3], values, strict=True):
                if isinstance(value, str) or pd.isna(value):
                    assert shown == ("missing" if pd.isna(value) else value)
                else:
                    assert float(shown) == pytest.approx(value, rel=6e-3)
            assert cells[3] == three(line[cells[0]])
            assert (cells[4][0] if len(cells) > 4 else "+") == ("+" if line[cells[0]] > 0 else "-") or len(
                cells
            ) < 5
        left = (line[COLUMNS].astype(float) != 0).sum() - len(wanted)
        if left:
            rest = line[COLUMNS].astype(float).drop(wanted).sum()
            assert f"{left} more column{'s' * (left > 1)} {three(rest)}" in flat


def _rule(text: str) -> str:
    return next(line for line in text.splitlines() if line.startswith("---"))


def test_other_rows_are_described(one: wc.Changes) -> None:
    rows = one.to_frame().set_index("CustomerID")
    for status, sentence, where in (
        ("stayed", "stayed in cluster {}.", "to"),
        ("new", "is new; it is in cluster {}.", "to"),
        ("gone", "is gone; it was in cluster {}.", "from"),
    ):
        name = rows.index[rows["status"] == status][0]
        row = one.row(name)
        assert row.status == status
        assert row.account is None
        assert row.describe() == f"CustomerID {name} {sentence.format(rows.loc[name, where])}" == str(row)
        assert str(one.row(float(name))) == str(row)  # the id is that of the table


def test_a_move_between_segmentations_is_described(
    two: wc.Changes, seg: wc.Segmentation, refit: wc.Segmentation, before: Any, after: Any
) -> None:
    rows, labels = two.to_frame().set_index("CustomerID"), two.new_labels
    appeared = {str(label) for label in labels.values()} - set(NAMES.values())
    assert len(appeared) >= 1
    crossed = clusters(seg, after), clusters(refit, before).map(labels)
    kinds = set()
    for name, line in rows[rows["status"] == "moved"].iterrows():
        flat = re.sub(r"\s+", " ", two.row(name).describe())
        if str(line["to"]) in appeared:
            about, why = f"for leaving cluster {line['from']}", "the old segmentation has no cluster {to}"
        elif str(line["from"]) not in map(str, labels.values()):
            about, why = f"for cluster {line['to']}", "the new segmentation has no cluster {from}"
        else:
            about, why = f"for cluster {line['to']} against cluster {line['from']}", ""
        kinds.add(why)
        change = line["evidence_after"] - line["evidence_before"]
        reason = f" ({why.format(**line)})" if why else ""
        assert (
            f": the evidence {about} changed by {three(change)}, from {three(line['evidence_before'])} to "
            f"{three(line['evidence_after'])}{reason}. Of this change, {three(line['from_data'])} is due to "
            f"its values and {three(line['from_model'])} to the new segmentation. The old segmentation puts "
            f"its new values in cluster {crossed[0][name]}; the new one puts its old values in cluster "
            f"{crossed[1][name]}. column before after contribution data model"
        ) in flat
    assert len(kinds) > 1


def percent(n: int, whole: int) -> str:
    share, decimals = n / whole, 0
    while f"{share:.{decimals}%}" in (f"{0:.{decimals}%}", f"{1:.{decimals}%}") and share not in (0, 1):
        decimals += 1
    return f"{share:.{decimals}%}"


def test_the_summary_is_true(case: tuple[bool, wc.Changes, Any], before: Any, after: Any) -> None:
    is_refit, changes, rows = case
    n = rows["status"].value_counts()
    common = n["stayed"] + n["moved"]
    text = changes.summary()
    flat = re.sub(r"\s+", " ", text)
    assert flat.startswith(
        f"{len(before)} rows before and {len(after)} after: {common} in both, {n['gone']} gone and "
        f"{n['new']} new. Of the {common} rows in both, {n['stayed']} ({percent(n['stayed'], common)}) "
        f"stayed in the same cluster and {n['moved']} ({percent(n['moved'], common)}) moved. "
    )
    lines = [line.split() for line in text.splitlines()]
    for name, counts in changes.sizes().set_index("cluster").iterrows():
        wanted = [str(name), *(str(int(counts[each])) for each in SIZES)]
        (line,) = [cells for cells in lines if cells[: len(wanted)] == wanted]
        if is_refit and counts["overlap"] == counts["overlap"]:
            assert line[-1] == percent(counts["overlap"], 1)
    frame, drivers = changes.flows(), changes.drivers()
    moves = frame[frame["status"] == "moved"]
    for _, flow in moves.iterrows():
        mine = drivers[(drivers["from"] == flow["from"]) & (drivers["to"] == flow["to"])].head(3)
        was = (rows["from"] == flow["from"]).sum()
        drive = ", ".join(
            f"{each.column} {each.contribution:+.3g} (first in {each.first_in})" for each in mine.itertuples()
        )
        assert f"{flow['from']} {flow['to']} {flow['rows']} {percent(flow['rows'], was)} {drive}" in flat
    drift = changes.drift()
    alarms = drift[drift["alarm"]]
    assert f"Drift: {len(alarms)} of {len(drift)} comparisons of columns within clusters " in flat
    for line in alarms.head(10).itertuples():
        size = "p < 0.0001" if line.p_value < 1e-4 else f"p = {line.p_value:.2g}"
        pattern = rf"- {line.column} in cluster {line.cluster}: mean (\S+) before and (\S+) after \(shift "
        found = re.search(pattern + re.escape(f"{line.shift:+.2g}, {size})."), flat)
        assert found is not None
        assert float(found[1]) == pytest.approx(line.before, rel=6e-3)
        assert float(found[2]) == pytest.approx(line.after, rel=6e-3)
    if is_refit:
        assert "within clusters of the old segmentation raise" in flat
        appeared = [label for label in changes.labels.tolist() if label not in NAMES.values()]
        assert f"Cluster {appeared[0]} is new in the new segmentation. " in flat
        assert "Their evidence is that for leaving their old cluster." in flat
    assert str(changes) == text
    assert repr(changes) == (
        f"<Changes: {n['moved']} of {common} common rows moved; {n['gone']} gone, {n['new']} new>"
    )


SIZES = ["before", "after", "stayed", "moved_out", "moved_in", "gone", "new"]


def test_a_summary_of_few_moves_says_how_many_are_left(one: wc.Changes) -> None:
    flows = one.flows()
    moves = flows[flows["status"] == "moved"]
    n, rows = len(moves) - 1, int(moves["rows"].iloc[1:].sum())
    assert f"... and {n} more move{'s' * (n > 1)}, of {rows} row{'s' * (rows > 1)}" in one.summary(n_flows=1)


def test_nothing_moves_in_the_same_month(seg: wc.Segmentation, before: Any) -> None:
    same = wc.changes(seg, before, before.iloc[::-1], on="CustomerID")
    text = re.sub(r"\s+", " ", same.summary())
    assert "Of the 240 rows in both, 240 (100%) stayed in the same cluster and 0 (0%) moved." in text
    assert "driven by" not in text
    n = len(same.drift())
    assert text.endswith(
        f"Drift: no alarm in {n} comparisons of columns within clusters. An alarm needs a shift of at least "
        "0.1 standard deviations and a p-value, corrected for the number of comparisons, of at most 0.01."
    )
    assert (same.drift()["p_value"] == 1.0).all()
    assert len(same.drivers()) == 0
    assert set(same.to_frame()["status"]) == {"stayed"}


def test_months_of_one_row(seg: wc.Segmentation, before: Any) -> None:
    one = wc.changes(seg, before.iloc[[0]], before.iloc[[0]], on="CustomerID")
    assert repr(one) == "<Changes: 0 of 1 common row moved; 0 gone, 0 new>"
    text = re.sub(r"\s+", " ", one.summary())
    assert text.startswith(
        "1 row before and 1 after: 1 in both, 0 gone and 0 new. Of the 1 row in both, 1 (100%)"
    )
    assert text.endswith(
        "Drift: nothing could be compared. No column varies within a cluster with rows in both tables."
    )
    assert len(one.drift()) == 0


def test_a_vanished_cluster_is_named(seg: wc.Segmentation, before: Any) -> None:
    gone = before[seg.assign(before) != "Rare"]
    text = wc.changes(seg, before, gone, on="CustomerID").summary()
    assert "\nCluster Rare is without rows after.\n" in text
    back = wc.changes(seg, gone, before, on="CustomerID").summary()
    assert "\nCluster Rare is without rows before.\n" in back


def test_the_residual_of_a_mixture_is_reported(before: Any) -> None:
    """The parts of the model are differences of splits, which do not add up for mixtures."""
    months, noise = (before, customers(seed=5)), np.random.default_rng(0).normal(size=240)
    both = [
        month[["CustomerID", "age", "visits"]].assign(sum=month["age"] + month["visits"] + noise)
        for month in months
    ]
    rows = [month[["age", "visits", "sum"]] for month in both]
    segs = [kept(GaussianMixture(3, random_state=0).fit(X), X) for X in rows]
    alone = wc.changes(segs[0], *both, on="CustomerID")
    assert np.abs(alone.record.moves.accounts.residual).max() <= 1e-9
    assert "no single column" not in alone.summary()
    changes = wc.changes(*segs, *both, on="CustomerID")
    frame = changes.to_frame()
    frame = frame[frame["residual"].notna()]
    share = frame["residual"].abs().sum() / (frame["evidence_after"] - frame["evidence_before"]).abs().sum()
    assert share > 0.005
    line = f"Relative to the changes of the evidence, {share:.0%} belongs to no single column."
    assert line in changes.summary()
    name = frame["CustomerID"].iloc[0]
    wanted = f"no single column {three(frame['residual'].iloc[0])}"
    assert wanted in re.sub(r"\s+", " ", changes.row(name).describe())


def test_a_surrogate_says_how_well_it_predicts(before: Any, after: Any) -> None:
    X = before[["age", "visits"]]
    seg = kept(KMeans(3, n_init=1, random_state=0).fit_predict(X), X)
    assert seg.network.fidelity is not None
    text = re.sub(r"\s+", " ", wc.changes(seg, before, after, on="CustomerID").summary())
    assert (
        "The clusters are those of a surrogate, which predicts the labels of "
        f"{seg.network.fidelity.cross_validated:.1%} of the rows that it was not fitted to."
    ) in text


@pytest.mark.parametrize("kind", ["polars", "pyarrow"])
def test_frames_come_back_as_they_were_given(
    kind: str, one: wc.Changes, before: Any, after: Any, seg: wc.Segmentation
) -> None:
    months = [month.reset_index(drop=True) for month in (before, after)]
    if kind == "polars":
        frames = [pl.from_pandas(month) for month in months]
    else:
        frames = [pa.Table.from_pandas(month, preserve_index=False) for month in months]
    changes = wc.changes(seg, *frames, on="CustomerID")
    wanted = pl.DataFrame if kind == "polars" else pa.Table
    for name in ("to_frame", "flows", "drivers", "sizes", "drift"):
        found, expected = getattr(changes, name)(), getattr(one, name)()
        assert isinstance(found, wanted)
        pd.testing.assert_frame_equal(found.to_pandas(), expected, check_dtype=False)
        assert isinstance(getattr(changes, name)("pandas"), pd.DataFrame)
    assert changes.summary() == one.summary()


def test_missing_labels_of_numbered_clusters_stay_numbers(before: Any, after: Any) -> None:
    polars = [pl.from_pandas(month.reset_index(drop=True)) for month in (before, after)]
    found = wc.changes(segmentation(before), *polars, on="CustomerID").to_frame()
    assert found["from"].dtype == pl.Int64
    assert found["from"].null_count() == (found["status"] == "new").sum()


def test_ids_may_be_the_index(one: wc.Changes, seg: wc.Segmentation, before: Any, after: Any) -> None:
    months = [month.set_index("CustomerID") for month in (before, after)]
    found = wc.changes(seg, *months, on="CustomerID")
    pd.testing.assert_frame_equal(found.to_frame(), one.to_frame())


def test_numbers_match_as_floats(one: wc.Changes, seg: wc.Segmentation, before: Any, after: Any) -> None:
    floats = after.astype({"CustomerID": float})
    assert wc.changes(seg, before, floats, on="CustomerID").summary() == one.summary()


def test_columns_may_have_the_names_of_the_frame(before: Any, after: Any) -> None:
    new = {"age": "status", "visits": "from"}
    months = [month[["CustomerID", "age", "visits"]].rename(columns=new) for month in (before, after)]
    X = months[0][["status", "from"]]
    model = KMeans(3, n_init=1, random_state=0).fit(X)
    found = wc.changes(kept(model, X), *months, on="CustomerID").to_frame()
    added = ["status_", "from_", "to", "evidence_before", "evidence_after", "residual"]
    assert [*found] == ["CustomerID", *added, "status", "from"]


def test_data_are_not_changed(seg: wc.Segmentation, before: Any, after: Any) -> None:
    copies = before.copy(), after.copy()
    wc.changes(seg, before, after, on="CustomerID").summary()
    pd.testing.assert_frame_equal(before, copies[0])
    pd.testing.assert_frame_equal(after, copies[1])


def test_later_changes_of_the_data_do_not_matter(seg: wc.Segmentation, before: Any, after: Any) -> None:
    months = before.copy(), after.copy()
    changes = wc.changes(seg, *months, on="CustomerID")
    rows = changes.to_frame()
    name = rows["CustomerID"][rows["status"] == "moved"].iloc[0]
    text = changes.row(name).describe()
    months[0].loc[:, "spend"] = -1.0
    months[1].loc[:, "spend"] = -1.0
    assert changes.row(name).describe() == text
