"""The two kinds of arrays that all modules exchange."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]

Codes: TypeAlias = NDArray[np.intp]
"""Clusters as 0..K-1, in the order of their energies."""
