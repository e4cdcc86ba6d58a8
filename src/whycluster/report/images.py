"""Reports on deep clusterings, with images and heat maps or with numbered channels and locations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.data.arrays import strongest
from whycluster.deep.explanation import CHANNELS, DeepExplanation
from whycluster.deep.images import displayable_images
from whycluster.report.contents import Contents, Plan
from whycluster.report.formatting import clean_names, format_shares
from whycluster.report.packing import scaled_halves, smallest_codes, smallest_floats
from whycluster.report.rows import claims_of, nearest_clusters, pack_contrasts

_UNITS_SHOWN = 6  # per cluster
_MOST = 0.5  # a competitor is named if it has more than this share of the members


@dataclass(frozen=True)
class DeepContents(Contents):
    """The contents that all reports on deep clusterings share."""

    exp: DeepExplanation

    def facts(self) -> list[tuple[str, str]]:
        """Add the shape of the relevance to the facts."""
        facts = super().facts()
        shape = " x ".join(map(str, self.exp.relevance.shape[1:]))
        where = "" if self.exp.at is None else f" of layer {clean_names([self.exp.at])[0]}"
        facts.insert(1, ("Explained in", f"{shape} {self.exp.units or 'values'}{where}"))
        return facts

    def clusters(self) -> list[dict[str, Any]]:
        """Add the main competitor of each cluster."""
        cards = super().clusters()
        for g, card in zip(self.described.tolist(), cards, strict=True):
            competitor, share = self.groups.competitors(g)
            heading = self.headings[competitor[0]]
            if share[0] > _MOST:
                card["sentence"] = f"Mostly against {heading[0].lower()}{heading[1:]}."
        return cards


@dataclass(frozen=True)
class ImageContents(DeepContents):
    """The contents of a report on images."""

    kind: ClassVar[str] = "images"

    def plans(self) -> list[Plan]:
        """Return the plans to try, each with the number of pixels along a side to show."""
        others = len(self.names) - 1
        return [Plan(side, min(others, 60)) for side in (96, 64, 48, 32)]

    def not_shown(self, plan: Plan) -> list[str]:
        """Return a sentence about the size of images if they are reduced."""
        side = max(self.exp.heatmaps.shape[1:])
        return (
            [f"Images and heat maps are reduced to at most {plan.detail} pixels per side."]
            if side > plan.detail
            else []
        )

    def n_bytes(self, chosen: Codes, plan: Plan) -> int:
        """Estimate the size of the images and heat maps."""
        n_pixels = _reduced_size(self.exp.heatmaps.shape[1:], plan.detail)
        shape = np.shape(self.exp.data)
        if len(shape) == 4:
            n_pixels += shape[1] * _reduced_size(shape[2:], plan.detail)
        return len(chosen) * (n_pixels + 50 + 3 * plan.n_others) * 4 // 3

    def rows(self, chosen: Codes, plan: Plan) -> dict[str, Any]:
        """Return the chosen images and their heat maps."""
        exp = self.exp[chosen]
        side = plan.detail
        heat = _reduced(exp.heatmaps.astype(np.float64), side, np.add)
        scale = np.abs(heat).max(axis=(1, 2), initial=0.0)
        unit = np.divide(127.0, scale, out=np.zeros(len(scale)), where=scale > 0)
        flat = exp.relevance.reshape(len(exp), -1)
        found = {
            "heat": np.round(heat * unit[:, None, None]).astype(np.int8),
            "total_for": smallest_floats(np.maximum(flat, 0).sum(axis=1, dtype=np.float64)),
            "total_against": smallest_floats(np.minimum(flat, 0).sum(axis=1, dtype=np.float64)),
        }
        images = displayable_images(exp.data)
        if images is not None:
            found["picture"] = _bytes(np.stack(images), side)
        others = nearest_clusters(exp, plan.n_others)
        return claims_of(self, chosen, exp) | pack_contrasts(*others, len(self.names)) | found


@dataclass(frozen=True)
class UnitContents(DeepContents):
    """The contents of a report on channels, locations or other numbered units."""

    kind: ClassVar[str] = "table"

    @cached_property
    def relevance(self) -> NDArray[Any]:
        """(n, d) the relevance of each unit."""
        exp = self.exp
        values = exp.relevance if exp.relevance.ndim == 2 or exp.units == CHANNELS else exp.heatmaps
        return values.reshape(len(exp), -1)

    @cached_property
    def unit_names(self) -> list[str]:
        """(d,) the names of the units."""
        if self.exp.relevance.ndim == 2:
            return clean_names(self.exp.names)
        return [f"location {i}" for i in range(self.relevance.shape[1])]

    def clusters(self) -> list[dict[str, Any]]:
        """Add the units with the largest share in each cluster."""
        cards = super().clusters()
        for card in cards:
            own = self.exp.is_member & (self.exp.cluster_codes == card["code"])
            mean = self.relevance[own].mean(axis=0, dtype=np.float64)
            share = mean / (np.abs(mean).sum() or 1.0)
            order = strongest(share[None], _UNITS_SHOWN)[0].tolist()
            card["features"] = self._features(share, order)
        return cards

    def _features(self, share: Floats, order: list[int]) -> list[dict[str, Any]]:
        percents, largest = format_shares(share[order].tolist()), float(np.abs(share).max()) or 1.0
        blank = {"comparison": "", "inside": "", "outside": "", "drawing": None}
        return [
            {
                "name": self.unit_names[i],
                "share": percent,
                "width": round(100 * abs(share[i]) / largest, 1),
                "side": "for" if share[i] >= 0 else "against",
                **blank,
            }
            for i, percent in zip(order, percents, strict=True)
        ]

    def plans(self) -> list[Plan]:
        """Return the plans to try, each with the number of units and of other clusters to show."""
        others = len(self.names) - 1
        return [
            Plan(min(n, len(self.unit_names)), min(others, most)) for n, most in ((10, 60), (6, 20), (4, 6))
        ]

    def not_shown(self, plan: Plan) -> list[str]:
        """Return a sentence if some units are not shown."""
        d = len(self.unit_names)
        if plan.detail >= d:
            return []
        return [
            f"Each {self.noun} shows the {plan.detail} strongest of {d} units and the sum of all other units."
        ]

    def n_bytes(self, chosen: Codes, plan: Plan) -> int:
        """Estimate the size of the arrays."""
        return len(chosen) * (40 + 6 * plan.detail + 3 * plan.n_others) * 4 // 3

    def rows(self, chosen: Codes, plan: Plan) -> dict[str, Any]:
        """Return the strongest units of the chosen inputs."""
        exp, some = self.exp[chosen], self.relevance[chosen]
        columns = strongest(some, plan.detail)
        used, place = np.unique(columns, return_inverse=True)
        scale, relevance = scaled_halves(np.take_along_axis(some, columns, axis=1))
        return (
            claims_of(self, chosen, exp)
            | pack_contrasts(*nearest_clusters(exp, plan.n_others), len(self.names))
            | {
                "features": [{"name": self.unit_names[i]} for i in used.tolist()],
                "n_features": len(self.unit_names),
                "scale": scale,
                "feature": smallest_codes(place.reshape(columns.shape)),
                "relevance": relevance,
            }
        )


def contents_of(exp: DeepExplanation) -> type[DeepContents]:
    """Return the class of contents that suits the shape of the relevance."""
    return ImageContents if exp.units != CHANNELS and exp.heatmaps.ndim == 3 else UnitContents


def _reduced_size(shape: Any, side: int) -> int:
    return int(np.prod([-(-n // _factor(shape, side)) for n in shape]))


def _factor(shape: Any, side: int) -> int:
    """Return the number of pixels along a side that are combined into one."""
    return int(max(1, -(-max(shape) // side)))


def _reduced(values: NDArray[Any], side: int, how: np.ufunc) -> NDArray[Any]:
    """Reduce the last two axes in blocks with the ufunc ``how``."""
    factor = _factor(values.shape[-2:], side)
    for axis in (-2, -1):
        values = how.reduceat(values, np.arange(0, values.shape[axis], factor), axis=axis)
    return values


def _bytes(images: Floats, side: int) -> NDArray[np.uint8]:
    """Convert images from 0 to 1, (n, 3, H, W), to bytes, (n, h, w, 3), or (n, h, w) for gray images."""
    size = _reduced(np.ones(images.shape[-2:]), side, np.add)
    small = np.round(255 * _reduced(images, side, np.add) / size).astype(np.uint8)
    gray = bool((small == small[:, :1]).all())
    return small[:, 0] if gray else np.moveaxis(small, 1, -1)
