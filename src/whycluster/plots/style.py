"""How all plots look: colours that everybody can tell apart, names that are shown as they are, figures."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from whycluster import console
from whycluster.errors import InvalidInputError, MissingDependencyError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

FOR, AGAINST = "#1e6edc", "#e66e00"  # as in pages of documents
GREY, PALE = "#767676", "#d9d9d9"
HATCH = "////"  # of what speaks against, so that it is seen without colours too
FONT, SMALL = 9, 8  # points
LINE = 0.27  # inches from one line of text or bar to the next
MINUS = "\N{MINUS SIGN}"

# Okabe and Ito's colours without the yellow, which is hardly seen on white, and markers, of which there is
# one more: the same colour comes back with another marker, up to 56 clusters.
CLUSTER_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#000000")
CLUSTER_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
LINE_STYLES = ("-", "--", "-.", ":")

_LONGEST = (26, 34, 44, 60)  # letters of a name; more only where names would be the same otherwise
AS_IT_IS: dict[str, Any] = {"parse_math": False, "usetex": False}  # a dollar sign is a dollar sign


def new_figure(width: float, height: float) -> Figure:
    """A figure of so many inches that pyplot does not know, so that nothing else is changed by it."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError('plots need matplotlib: pip install "whycluster[plots]"') from error
    return Figure(figsize=(width, height), layout="constrained")


def open_axes(ax: Any, where: str, width: float, height: float) -> Axes:
    """The user's Axes, or those of a new figure."""
    if ax is None:
        return new_figure(width, height).add_subplot()
    return check_axes(ax, where)


def check_axes(ax: Any, where: str) -> Axes:
    """The Axes, if they are some."""
    if not (hasattr(ax, "barh") and hasattr(ax, "get_figure")):
        raise InvalidInputError(
            f"{where}: ax must be Axes of matplotlib, such as plt.subplots()[1]; got {type(ax).__name__}."
        )
    axes: Axes = ax
    return axes


def cut(text: str, longest: int = _LONGEST[0]) -> str:
    """The text on one line, without its middle where it is too long: ends tell columns apart."""
    text = console.printable(text)
    if _width(text) <= longest:
        return text
    head = longest * 3 // 5
    tail = longest - 1 - head
    first = next(i for i in range(len(text), -1, -1) if _width(text[:i]) <= head)
    last = next(i for i in range(len(text) + 1) if _width(text[i:]) <= tail)
    return f"{text[:first].rstrip()}…{text[last:].lstrip()}"


def cut_all(names: Iterable[Any]) -> list[str]:
    """Names, cut; less where two would be the same."""
    texts = [str(name) for name in names]
    shown: list[str] = []
    for longest in _LONGEST:
        shown = [cut(text, longest) for text in texts]
        if len(set(shown)) == len(set(texts)):
            break
    return shown


def wrap(text: str, width: int = 62) -> str:
    """A sentence on several lines of about the same length, control characters shown."""
    text = console.printable(text)
    n_lines = -(-len(text) // width)
    return "\n".join(textwrap.wrap(text, min(width, len(text) // n_lines + 8) if n_lines > 1 else width))


def title(ax: Axes, text: str) -> None:
    """Above the axes, on the left."""
    ax.set_title(text, loc="left", fontsize=FONT, **AS_IT_IS)


def write(ax: Axes, x: float, y: float, text: str, **options: Any) -> Any:
    """Text in the axes, shown as it is."""
    return ax.text(x, y, text, **{"fontsize": SMALL, **AS_IT_IS, **options})


def note(ax: Axes, text: str) -> Any:
    """What the axis says at the bottom."""
    return ax.set_xlabel(text, fontsize=SMALL, loc="left", **AS_IT_IS)


def name_ticks(axis: Any, names: Sequence[str], places: Sequence[float] | None = None) -> None:
    """Names along an axis, without ticks."""
    axis.set_ticks(range(len(names)) if places is None else places, names, fontsize=SMALL, **AS_IT_IS)
    axis.set_tick_params(length=0)


def legend(ax: Axes, **options: Any) -> Any:
    """The legend, with names as they are; to the right of the axes unless said otherwise."""
    beside = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0, "frameon": False}
    made = ax.legend(**{"fontsize": SMALL, **beside, **options})
    for text in made.get_texts():
        text.set(**AS_IT_IS)
    return made


def bare(ax: Axes, *sides: str) -> None:
    """Without a frame but on these sides."""
    for side, spine in ax.spines.items():
        spine.set_visible(side in sides)


def signed(value: float, form: str | None = None) -> str:
    """A number with its sign, a true minus; by default in three digits, or all before the point."""
    if form is None:
        form = ",.0f" if 1e3 <= abs(value) < 1e6 else ".3g"
    text = f"{value + 0.0:+{form}}"
    zero = not any(c in "123456789" for c in text.split("e")[0])
    return (text.lstrip("+-") if zero else text).replace("-", MINUS)


def diverging() -> Colormap:
    """From what speaks against over white to what speaks for."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("whycluster", [AGAINST, "white", FOR])


def cluster_style(code: int, is_noise: bool) -> tuple[str, str]:
    """Colour and marker of a cluster; noise is a grey cross."""
    if is_noise:
        return GREY, "x"
    return CLUSTER_COLOURS[code % len(CLUSTER_COLOURS)], CLUSTER_MARKERS[code % len(CLUSTER_MARKERS)]


def some_rows(n_rows: int, most: int) -> Any:
    """Positions of at most so many rows, evenly over all."""
    return np.unique(np.linspace(0, n_rows - 1, min(n_rows, most)).astype(np.intp))


def _width(text: str) -> int:
    """How many columns it takes: wide letters two, accents that are put on others none."""
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)
