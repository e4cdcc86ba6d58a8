"""Figures that notebooks show; needs matplotlib."""

from __future__ import annotations

import io

from matplotlib.figure import Figure


class NotebookFigure(Figure):
    """A figure that pyplot does not know, and that a notebook shows all the same where it ends a cell."""

    def _repr_png_(self) -> bytes:
        with io.BytesIO() as file:
            self.savefig(file, format="png")
            return file.getvalue()
