"""How figures look: each method has its own colour, marker and dashes, the same in every figure of the library.

Colours are Okabe and Ito's, which colour-blind readers can tell apart; dashes and markers tell lines apart in print.
"""

import io
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from sottovoce.core.plain import Json

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.typing import RcKeyType

ON_WHITE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
ON_BLACK = ("#56B4E9", "#F0894A", "#2FC496", "#E29BC4", "#F0B93A", "#9AD0F5", "#FFFFFF")
DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
MARKERS = ("o", "s", "D", "^", "X", "P", "*")
_HTML_DASHES = ("solid", "dash", "dot", "dashdot")  # the same in the words of `page.js`
_HTML_MARKERS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star")
# Row by row, one method for each colour: those that papers compare with each other have different colours.
_METHODS = (
    *("dp-admm", "dp-sgd", "fedspd-dp", "fed-plt", "fedepm", "admm-sharing", "admm"),
    *("fedpd", "fedlin", "tamuna", "fedavg", "led", "5gcs", "fedprox"),
    *("sfedavg", "sfedprox", "pvp", "dvp", "dp-fedavg", "scaffold", "fdml"),
)
_OTHER_NAMES = {"noisy GD": "dp-sgd", "noisy gradient descent": "dp-sgd", "SGD": "fdml"}  # in figures of papers

REFERENCE: Json = {"color": "0.35", "linewidth": 1.2, "linestyle": ":"}  # a level to compare lines with
PARAMETERS: "dict[RcKeyType, object]" = {  # of matplotlib
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "0.9",
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "figure.constrained_layout.use": True,
    "figure.dpi": 150,
    "savefig.dpi": "figure",
}


@dataclass(frozen=True)
class Style:
    """How one line is drawn: places in the lists of colours, dashes and markers."""

    colour: int
    dashes: int
    marker: int

    @property
    def on_white(self) -> str:
        """The colour, as "#rrggbb"."""
        return ON_WHITE[self.colour]

    def line(self, markers: bool = True) -> Json:
        """Options for matplotlib's `plot`."""
        drawn = {"color": self.on_white, "linestyle": DASHES[self.dashes]}
        return drawn | ({"marker": MARKERS[self.marker], "markersize": 4.5} if markers else {})

    def html(self) -> dict[str, str]:
        """The same for a chart of the report."""
        colours = {"on_white": ON_WHITE[self.colour], "on_black": ON_BLACK[self.colour]}
        return colours | {"dash": _HTML_DASHES[self.dashes], "marker": _HTML_MARKERS[self.marker]}


def _key(name: str) -> str:
    """The method in the name of a line: what is before the first comma, "Fed-PLT" and "fed-plt" alike."""
    method = name.split(",")[0]
    return "".join(sign for sign in _OTHER_NAMES.get(method, method).lower() if sign.isalnum())


def _own(place: int) -> Style:
    row, colour = divmod(place, len(ON_WHITE))
    return Style(colour, (colour + row) % len(DASHES), (colour + 2 * row) % len(MARKERS))


@lru_cache
def own_styles() -> dict[str, Style]:
    """The style of each method, by its key. Methods that are not named above follow in the order of the registry."""
    from sottovoce.algorithms import ALGORITHMS

    keys = dict.fromkeys(_key(name) for name in (*_METHODS, *ALGORITHMS))
    return {key: _own(place) for place, key in enumerate(keys)}


def of_method(name: str) -> Style | None:
    """The style of the method that a line is named after; None if it is no method."""
    return own_styles().get(_key(name))


def styles(names: Sequence[str]) -> list[Style]:
    """The style of each line of a figure, by the method it is named after: "fed-plt", or "Fed-PLT, 5 clients".

    Several lines of one method share its colour and marker and differ in their dashes. Names that are no methods get
    colours that no method in the figure has.

    Examples
    --------
    >>> from sottovoce.report.style import styles
    >>> [style.on_white for style in styles(["DP-ADMM", "my own method", "noisy gradient descent"])]
    ['#0072B2', '#009E73', '#D55E00']
    """
    keys = [_key(name) for name in names]
    known = {key: own_styles()[key] for key in keys if key in own_styles()}
    taken = {style.colour for style in known.values()}
    free = itertools.cycle([colour for colour in range(len(ON_WHITE)) if colour not in taken] or range(len(ON_WHITE)))
    chosen: list[Style] = []
    for place, key in enumerate(keys):
        if key in known:
            base = known[key]
            chosen.append(Style(base.colour, (base.dashes + keys[:place].count(key)) % len(DASHES), base.marker))
        else:
            chosen.append(Style(next(free), place % len(DASHES), place % len(MARKERS)))
    return chosen


@contextmanager
def new_figure(width: float, height: float, dpi: int = 150) -> "Iterator[Figure]":
    """An empty figure of so many inches; what is drawn inside the context has the library's style.

    Not by pyplot, which keeps figures alive and looks for a screen.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context(PARAMETERS):
        figure = Figure(figsize=(width, height), dpi=dpi)
        FigureCanvasAgg(figure)
        yield figure


def image(figure: "Figure", kind: str = "png") -> bytes:
    """The figure as a PNG or SVG file: the same bytes for the same figure."""
    if kind == "png":
        return _in_a_palette(figure)
    from matplotlib import rc_context

    file = io.BytesIO()
    with rc_context({"svg.hashsalt": "sottovoce", "svg.fonttype": "none"}):  # text stays text: small, and can be found
        figure.savefig(file, format=kind, metadata={"Date": None, "Creator": None})
    return file.getvalue()


def _in_a_palette(figure: "Figure") -> bytes:
    """The figure as a PNG file of 256 colours, which a few and their edges fit into: a third of the size.

    Drawn once, where `savefig` draws twice, and encoded once.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image  # matplotlib needs it, too

    canvas, file = cast(FigureCanvasAgg, figure.canvas), io.BytesIO()
    canvas.draw()
    drawn = Image.frombuffer("RGBA", canvas.get_width_height(), bytes(canvas.buffer_rgba()))
    drawn = drawn.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    drawn.save(file, "png", optimize=True, dpi=(figure.dpi, figure.dpi))
    return file.getvalue()


def percent(axis: "Axis") -> None:
    """Label a share between 0 and 1 in per cent."""
    from matplotlib.ticker import PercentFormatter

    axis.set_major_formatter(PercentFormatter(xmax=1.0))
