"""Checks of the clusters as a whole, for all kinds of explanations."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from whycluster.core.evidence import bar_of
from whycluster.data import display
from whycluster.data.display import MOST_LISTED, capitalize, format_names, join_first, percent
from whycluster.data.labels import list_clusters, noise_mask
from whycluster.explanations.base import BaseExplanation
from whycluster.explanations.checks.finding import (
    Check,
    Finding,
    check_of,
    cluster_text,
    nouns,
)
from whycluster.explanations.fidelity import LOW, Fidelity
from whycluster.explanations.stories.member_sample import MemberSample, members_of

ENOUGH = 10  # number of rows needed for most checks
FEW_ROWS = f"not checked: fewer than {ENOUGH} rows"

_MOSTLY = 0.5  # share of the members of a cluster, or of all rows
_ALIKE = 0.1  # fraction of the median evidence
_LARGE_RESIDUAL = 0.25  # fraction of the evidence
_ROUNDING = 1e-6  # fraction of the evidence
_SMALL, _SMALL_SHARE = 10, 0.01  # rows of a cluster, and share of all rows


def check_fidelity(exp: BaseExplanation) -> Check:
    """Check whether a surrogate predicts the labels."""
    if exp.fidelity is None:
        return Check("fidelity", "the model itself is explained, without a surrogate")
    agreement = f"the surrogate predicts {exp.fidelity.cross_validated:.1%} of the labels"
    return check_of("fidelity", _unfaithful(exp, exp.fidelity), agreement)


def _unfaithful(exp: BaseExplanation, fidelity: Fidelity) -> Iterator[Finding]:
    agreement = fidelity.cross_validated_per_cluster
    bad = [c for c in np.argsort(agreement, kind="stable") if fidelity.size[c] and agreement[c] < LOW]
    rows, noun = nouns(exp), nouns(exp, 1)
    matched = [
        f"{cluster_text(fidelity.labels[c])} ({agreement[c]:.1%} of {display.count(fidelity.size[c], noun)})"
        for c in bad
    ]
    labels = tuple(fidelity.labels[bad].tolist())
    advice = ", and check that the columns are those that the labels were made from" * (exp.unit == "feature")
    if fidelity.cross_validated < LOW:
        yield Finding(
            "fidelity",
            f"The labels are explained through a surrogate, which predicts only "
            f"{fidelity.cross_validated:.1%} of them for {rows} that it was not fitted to "
            f"({fidelity.in_sample:.1%} for {rows} that it was). What holds for the surrogate may not hold "
            f"for the labels. Poorly matched: {join_first(matched)}. Read the explanations of these clusters "
            f"with care{advice}.",
            labels,
        )
    elif bad:
        yield Finding(
            "fidelity",
            f"The labels are explained through a surrogate. It predicts {fidelity.cross_validated:.1%} of "
            f"all labels for {rows} that it was not fitted to, but fewer here: {join_first(matched)}. Read "
            f"the explanations of these clusters with care.",
            labels,
        )


def check_residual(exp: BaseExplanation) -> Check:
    """Check how much of the evidence of each cluster belongs to no single feature."""
    bar = 0.0 if exp.threshold is None else bar_of(exp.threshold)
    codes, group = np.unique(exp.cluster_codes, return_inverse=True)
    total = np.bincount(group, np.abs(exp.evidence.astype(np.float64)))
    left = np.bincount(group, np.abs(exp.residual - bar))
    part = np.divide(left, total, out=np.zeros(len(codes)), where=total > 0)
    large = [g for g in np.argsort(-part, kind="stable") if part[g] > _LARGE_RESIDUAL]
    found = []
    if large:
        listed = join_first([f"{cluster_text(exp.labels[codes[g]])} ({percent(part[g])})" for g in large])
        includes = f" It includes {exp.energy.unattributed}." if exp.energy.unattributed else ""
        text = (
            f"The relevance of the {exp.unit}s does not add up to the evidence. Relative to the evidence, "
            f"the residual, which belongs to no single {exp.unit}, is largest in {listed}.{includes} So the "
            f"relevance and the shares do not explain all of the evidence."
        )
        found.append(Finding("residual", text, tuple(exp.labels[codes[large]].tolist())))
    return check_of("residual", found, _small_residual(float(part.max(initial=0.0)), exp.unit))


def _small_residual(part: float, unit: str) -> str:
    if part < _ROUNDING:
        return f"the relevance of the {unit}s adds up to the evidence"
    size = "less than 1%" if part < 0.01 else f"up to {percent(part)}"
    return f"{size} of the evidence of a cluster belongs to no single {unit}"


def check_noise(exp: BaseExplanation) -> Check:
    """Check whether most rows are noise."""
    noise = np.array(noise_mask(exp.labels.tolist()))[exp.cluster_codes]
    n, total = int(noise.sum()), len(exp)
    found = []
    if total >= ENOUGH and n > _MOSTLY * total:
        found.append(
            Finding(
                "noise",
                f"Noise dominates: {n:,} of {display.count(total, exp.noun.lower())} ({percent(n / total)}) "
                f"are in no cluster. The clusters describe only the rest. Make sure that so "
                f"much noise is intended.",
            )
        )
    some = f"{n:,} of {total:,}" if n else "no"
    return check_of("noise", found, f"{some} {nouns(exp, 1 if not n else 2)} {'are' if n else 'is'} noise")


def check_sizes(exp: BaseExplanation) -> Check:
    """Check whether some clusters have few members."""
    codes, size = exp.member_clusters.codes, exp.member_clusters.size
    name, total = "small clusters", len(exp)
    if total < ENOUGH or not len(codes):
        return Check(name, FEW_ROWS if total < ENOUGH else f"not checked: no {nouns(exp, 1)} is a member")
    small = [g for g in np.argsort(size, kind="stable") if size[g] < max(_SMALL, _SMALL_SHARE * total)]
    found = []
    if small:
        listed = [
            f"{cluster_text(exp.labels[codes[g]])} ({display.count(int(size[g]), exp.noun.lower())})"
            for g in small
        ]
        one = len(small) == 1
        advice = (
            ", or cluster again with fewer clusters."
            if exp.fidelity is None
            else f" before you rely on how the surrogate explains the {'cluster' if one else 'clusters'}."
        )
        found.append(
            Finding(
                "small",
                f"{capitalize(join_first(listed))} {'is' if one else 'are'} small: fewer than "
                f"{_SMALL} {nouns(exp)}, or fewer than 1% of all {total:,}. "
                f"{'Its' if one else 'Their'} typical values are based on few {nouns(exp)}, which may be "
                f"outliers. Look at these {nouns(exp)}{advice}",
                tuple(exp.labels[codes[small]].tolist()),
            )
        )
    least = int(size.argmin())
    smallest = display.count(int(size[least]), exp.noun.lower())
    return check_of(name, found, f"the smallest is {cluster_text(exp.labels[codes[least]])}, {smallest}")


def check_alike(exp: BaseExplanation, sample: MemberSample | None) -> Check:
    """Check whether almost nothing separates two clusters."""
    name = "similar clusters"
    if len(exp.member_clusters.codes) < 2:
        return Check(name, "not checked: fewer than two clusters have members")
    if exp.median_evidence == 0.0:
        return Check(name, f"not checked: the median evidence of all {nouns(exp)} is 0")
    return check_of(name, _alike(exp, sample), "no two clusters have little evidence against each other")


def _alike(exp: BaseExplanation, sample: MemberSample | None) -> list[Finding]:
    """Warn about pairs of clusters whose members have little evidence against each other's cluster."""
    codes, median = exp.member_clusters.codes, exp.median_evidence
    some = MemberSample.of(exp, "warnings") if sample is None else sample
    middle: dict[tuple[int, int], float] = {}  # small medians only, since there may be many clusters
    for cluster, h in some.blocks():
        for a in np.unique(cluster).tolist():
            against = np.median(h[cluster == a][:, codes], axis=0)
            near = np.flatnonzero(against < _ALIKE * median)
            middle.update(((a, int(codes[b])), float(against[b])) for b in near)
    pairs = [(a, b) for a, b in middle if a < b and (b, a) in middle]
    pairs.sort(key=lambda pair: max(middle[pair], middle[pair[::-1]]))
    found = []
    advice = (
        f"{capitalize(nouns(exp))} may be in either by chance. Merge the two, or cluster again with fewer "
        f"clusters."
        if exp.fidelity is None
        else "The surrogate can hardly tell the two apart, so do not rely on how it explains their "
        "difference."
    )
    for a, b in pairs[:MOST_LISTED]:
        both = exp.labels[[a, b]]
        found.append(
            Finding(
                "alike",
                f"Almost nothing separates {list_clusters(format_names(both.tolist()))}: the median evidence "
                f"of the first against the second is {display.number(middle[a, b])}, and "
                f"{display.number(middle[b, a])} the other way around, compared with "
                f"{display.number(median)} for all {nouns(exp)}. {advice}",
                tuple(both.tolist()),
            )
        )
    if len(pairs) > MOST_LISTED:
        more = display.count(len(pairs) - MOST_LISTED, "more pair")
        found[-1] = found[-1]._replace(text=f"{found[-1].text} The same holds for {more} of clusters.")
    return found


def check_borderline(exp: BaseExplanation) -> Check:
    """Check whether most members of a cluster are borderline."""
    n = int(exp.is_borderline.sum())
    are = "is" if 1 in (n, len(exp)) else "are"
    some = f"{n:,} of {display.count(len(exp), exp.noun.lower())} {are} borderline"
    return check_of("borderline clusters", _undecided(exp), f"{some}, and no cluster is mostly borderline")


def _undecided(exp: BaseExplanation) -> Iterator[Finding]:
    """Warn about clusters whose members are mostly borderline."""
    near = exp.is_borderline
    advice = (
        "and could just as well be in another cluster. Do not rely on it; a different number of clusters, or "
        "different columns, may separate the clusters more clearly."
        if exp.fidelity is None
        else "so the surrogate can hardly tell the cluster from others. Do not rely on how it explains the "
        "cluster; different columns may separate the labels more clearly."
    )
    for code in exp.member_clusters.codes:
        own = near[members_of(exp, code)]
        if own.mean() > _MOSTLY:
            label, n = exp.labels[code], len(own)
            some = "its only" if n == 1 else f"{int(own.sum()):,} of its {n:,}"
            yield Finding(
                "borderline",
                f"{capitalize(cluster_text(label))} is mostly borderline: {some} {nouns(exp, n)} "
                f"{'has' if n == 1 else 'have'} at most a tenth of the median evidence, {advice}",
                tuple(exp.labels[[code]].tolist()),
            )
