"""The style shared by all plots: colorblind-safe colors, plain-text names and the creation of figures."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from whycluster.core.errors import InvalidInputError, MissingDependencyError
from whycluster.data import display
from whycluster.explanations.maps.cluster_styles import COLORS, SHAPES, style_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

FOR, AGAINST = "#1e6edc", "#e66e00"  # as in reports
GRAY, PALE = "#767676", "#d9d9d9"
HATCH = "////"  # for negative bars, so that they are visible without color
FONT, SMALL = 9, 8  # points
LINE = 0.27  # inches between lines of text or bars
MINUS, TIMES = "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}"

LINE_STYLES = ("-", "--", "-.", ":")

_LONGEST = 26  # characters in a name
# Fonts for characters that matplotlib's default font lacks, used if they are installed
_MORE_FONTS = (
    "Noto Sans CJK JP",
    "Noto Sans CJK SC",
    "Hiragino Sans",
    "PingFang SC",
    "Apple SD Gothic Neo",
    "Yu Gothic",
    "Microsoft YaHei",
    "Malgun Gothic",
    "Arial Unicode MS",
    "Segoe UI Emoji",
)


def new_figure(width: float, height: float) -> Figure:
    """Create a figure that is not registered with pyplot. Sizes are in inches."""
    try:
        from whycluster.plots.figures import NotebookFigure
    except ImportError as error:
        raise MissingDependencyError('plots need matplotlib: pip install "whycluster[plots]"') from error
    return NotebookFigure(figsize=(width, height), layout="constrained")


def open_axes(ax: Any, where: str, width: float, height: float) -> Axes:
    """Return the user's Axes, or the Axes of a new figure if ``ax`` is None."""
    if ax is None:
        return new_figure(width, height).add_subplot()
    return check_axes(ax, where)


def check_axes(ax: Any, where: str) -> Axes:
    """Return the Axes; raise an error for any other object."""
    if not (hasattr(ax, "barh") and hasattr(ax, "get_figure")):
        raise InvalidInputError(
            f"{where}: ax must be matplotlib Axes, such as plt.subplots()[1]; got {type(ax).__name__}."
        )
    axes: Axes = ax
    return axes


def cut(text: str, longest: int = _LONGEST) -> str:
    """Put a string on one line and cut its middle if it is too long, since names often differ at the ends."""
    text = display.printable(text)
    if _width(text) <= longest:
        return text
    head = longest * 3 // 5
    return f"{_first(text, head).rstrip()}…{_last(text, longest - 1 - head).lstrip()}"


def cut_all(names: Iterable[Any], longest: int = _LONGEST) -> list[str]:
    """Shorten names. Names that would then look the same keep the part in which they differ."""
    texts = [display.printable(str(name)) for name in names]
    short = [cut(text, longest) for text in texts]
    for same in {name for name in short if short.count(name) > 1}:
        places = [i for i, name in enumerate(short) if name == same]
        different = [texts[i] for i in places]
        if len(set(different)) > 1:
            for i in places:
                short[i] = _cut_around(texts[i], different, longest)
    return short


def _cut_around(text: str, others: Sequence[str], longest: int) -> str:
    """Shorten a string, keeping the word that differs from other strings and as much else as fits."""
    start = _common_prefix(others)
    stop = len(text) - _common_prefix([other[start:][::-1] for other in others])
    while start > 0 and text[start - 1].isalnum():
        start -= 1
    while stop < len(text) and text[stop].isalnum():
        stop += 1
    word = _first(text[start:stop], longest // 2)
    room = longest - 2 - _width(word)
    return f"{_first(text[:start], room - room // 3)}…{word}…{_last(text[stop:], room // 3)}"


def _common_prefix(texts: Sequence[str]) -> int:
    """Return the number of characters in the longest prefix that all strings share."""
    differ = (i for i, letters in enumerate(zip(*texts, strict=False)) if len(set(letters)) > 1)
    return next(differ, min(map(len, texts)))


def _first(text: str, width: int) -> str:
    """Return as many of the first characters as fit into the width."""
    return text[: next(i for i in range(len(text), -1, -1) if _width(text[:i]) <= width)]


def _last(text: str, width: int) -> str:
    """Return as many of the last characters as fit into the width."""
    return text[next(i for i in range(len(text) + 1) if _width(text[i:]) <= width) :]


def wrap(text: str, width: int = 62) -> str:
    """Break a sentence into lines of about the same length and escape control characters."""
    text = display.printable(text)
    n_lines = -(-len(text) // width)
    return "\n".join(textwrap.wrap(text, min(width, len(text) // n_lines + 8) if n_lines > 1 else width))


def plain_text() -> dict[str, Any]:
    """Return text options that disable math between dollar signs and set fonts for all scripts."""
    from matplotlib import rcParams

    return {"parse_math": False, "usetex": False, "fontfamily": [*rcParams["font.family"], *_more_fonts()]}


@cache
def _more_fonts() -> list[str]:
    from matplotlib.font_manager import fontManager

    installed = {font.name for font in fontManager.ttflist}
    return [name for name in _MORE_FONTS if name in installed]


def title(ax: Axes, text: str) -> None:
    """Write a title above the axes, on the left."""
    ax.set_title(text, loc="left", fontsize=FONT, **plain_text())


def write(ax: Axes, x: float, y: float, text: str, **options: Any) -> Any:
    """Write plain text into the axes."""
    return ax.text(x, y, text, **{"fontsize": SMALL, **plain_text(), **options})


def note(ax: Axes, text: str) -> Any:
    """Write a note below the axes."""
    return ax.set_xlabel(text, fontsize=SMALL, loc="left", **plain_text())


def name_ticks(axis: Any, names: Sequence[str], places: Sequence[float] | None = None) -> None:
    """Write names along an axis, without ticks."""
    axis.set_ticks(range(len(names)) if places is None else places, names, fontsize=SMALL, **plain_text())
    axis.set_tick_params(length=0)


def legend(ax: Axes, **options: Any) -> Any:
    """Draw a legend with plain-text names, by default to the right of the axes."""
    beside = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0, "frameon": False}
    made = ax.legend(**{"fontsize": SMALL, **beside, **options})
    for text in made.get_texts():
        text.set(**plain_text())
    return made


def bare(ax: Axes, *sides: str) -> None:
    """Remove the frame on all sides except the given ones."""
    for side, spine in ax.spines.items():
        spine.set_visible(side in sides)


def signed(value: float, form: str | None = None) -> str:
    """Format a number with its sign; by default, round it to three digits, or to an integer from 1,000 up."""
    if form is None:
        form = ",.0f" if 1e3 <= abs(value) < 1e6 else ".3g"
    text = f"{value + 0.0:+{form}}"
    zero = not any(c in "123456789" for c in text.split("e")[0])
    return (text.lstrip("+-") if zero else text).replace("-", MINUS)


def diverging() -> Colormap:
    """Return a color map from evidence against the cluster, through white, to evidence for it."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("whycluster", [AGAINST, "white", FOR])


def cluster_style(code: int, is_noise: bool) -> tuple[str, str]:
    """Return the color and marker of a cluster, which are the same as in reports."""
    style = style_of(code, is_noise)
    return COLORS[style.color].light, SHAPES[style.shape].marker


def _width(text: str) -> int:
    """Return the width in columns, where wide characters take two columns and combining accents none."""
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)
