"""How all plots look: colours that everybody can tell apart, names that are shown as they are, figures."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from whycluster.core.errors import InvalidInputError, MissingDependencyError
from whycluster.data import display
from whycluster.explanations.cluster_styles import COLORS, SHAPES, style_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

FOR, AGAINST = "#1e6edc", "#e66e00"  # as in pages of documents
GREY, PALE = "#767676", "#d9d9d9"
HATCH = "////"  # of what speaks against, so that it is seen without colours too
FONT, SMALL = 9, 8  # points
LINE = 0.27  # inches from one line of text or bar to the next
MINUS, TIMES = "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}"

LINE_STYLES = ("-", "--", "-.", ":")

_LONGEST = 26  # letters of a name
# Of systems that have them: what matplotlib's own font, which is asked first, has no letters for
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
    """A figure of so many inches that pyplot does not know, so that nothing else is changed by it."""
    try:
        from whycluster.plots.figures import NotebookFigure
    except ImportError as error:
        raise MissingDependencyError('plots need matplotlib: pip install "whycluster[plots]"') from error
    return NotebookFigure(figsize=(width, height), layout="constrained")


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


def cut(text: str, longest: int = _LONGEST) -> str:
    """The text on one line, without its middle where it is too long: ends tell columns apart."""
    text = display.printable(text)
    if _width(text) <= longest:
        return text
    head = longest * 3 // 5
    return f"{_first(text, head).rstrip()}…{_last(text, longest - 1 - head).lstrip()}"


def cut_all(names: Iterable[Any], longest: int = _LONGEST) -> list[str]:
    """Names, cut; those that would be the same keep the part in which they differ."""
    texts = [display.printable(str(name)) for name in names]
    shown = [cut(text, longest) for text in texts]
    for same in {name for name in shown if shown.count(name) > 1}:
        places = [i for i, name in enumerate(shown) if name == same]
        different = [texts[i] for i in places]
        if len(set(different)) > 1:
            for i in places:
                shown[i] = _cut_around(texts[i], different, longest)
    return shown


def _cut_around(text: str, others: Sequence[str], longest: int) -> str:
    """The word in which a text differs from others, with as much of its ends as there is room for."""
    start = _in_common(others)
    stop = len(text) - _in_common([other[start:][::-1] for other in others])
    while start > 0 and text[start - 1].isalnum():
        start -= 1
    while stop < len(text) and text[stop].isalnum():
        stop += 1
    word = _first(text[start:stop], longest // 2)
    room = longest - 2 - _width(word)
    return f"{_first(text[:start], room - room // 3)}…{word}…{_last(text[stop:], room // 3)}"


def _in_common(texts: Sequence[str]) -> int:
    """With how many letters all of them begin."""
    differ = (i for i, letters in enumerate(zip(*texts, strict=False)) if len(set(letters)) > 1)
    return next(differ, min(map(len, texts)))


def _first(text: str, width: int) -> str:
    """As many of the first letters as fit."""
    return text[: next(i for i in range(len(text), -1, -1) if _width(text[:i]) <= width)]


def _last(text: str, width: int) -> str:
    """As many of the last letters as fit."""
    return text[next(i for i in range(len(text) + 1) if _width(text[i:]) <= width) :]


def wrap(text: str, width: int = 62) -> str:
    """A sentence on several lines of about the same length, control characters shown."""
    text = display.printable(text)
    n_lines = -(-len(text) // width)
    return "\n".join(textwrap.wrap(text, min(width, len(text) // n_lines + 8) if n_lines > 1 else width))


def as_it_is() -> dict[str, Any]:
    """How names are written: a dollar sign is a dollar sign, and letters of all scripts are looked for."""
    from matplotlib import rcParams

    return {"parse_math": False, "usetex": False, "fontfamily": [*rcParams["font.family"], *_more_fonts()]}


@cache
def _more_fonts() -> list[str]:
    from matplotlib.font_manager import fontManager

    there = {font.name for font in fontManager.ttflist}
    return [name for name in _MORE_FONTS if name in there]


def title(ax: Axes, text: str) -> None:
    """Above the axes, on the left."""
    ax.set_title(text, loc="left", fontsize=FONT, **as_it_is())


def write(ax: Axes, x: float, y: float, text: str, **options: Any) -> Any:
    """Text in the axes, shown as it is."""
    return ax.text(x, y, text, **{"fontsize": SMALL, **as_it_is(), **options})


def note(ax: Axes, text: str) -> Any:
    """What the axis says at the bottom."""
    return ax.set_xlabel(text, fontsize=SMALL, loc="left", **as_it_is())


def name_ticks(axis: Any, names: Sequence[str], places: Sequence[float] | None = None) -> None:
    """Names along an axis, without ticks."""
    axis.set_ticks(range(len(names)) if places is None else places, names, fontsize=SMALL, **as_it_is())
    axis.set_tick_params(length=0)


def legend(ax: Axes, **options: Any) -> Any:
    """The legend, with names as they are; to the right of the axes unless said otherwise."""
    beside = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0, "frameon": False}
    made = ax.legend(**{"fontsize": SMALL, **beside, **options})
    for text in made.get_texts():
        text.set(**as_it_is())
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
    """Colour and marker of a cluster, as on pages."""
    look = style_of(code, is_noise)
    return COLORS[look.color].light, SHAPES[look.shape].marker


def _width(text: str) -> int:
    """How many columns it takes: wide letters two, accents that are put on others none."""
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)
