"""Clustering models as networks, and the adapters that turn fitted models into them.

Modules, in reading order:

- `network`: `Query`, the options of `explain`; `Network`, and `TableNetwork` for models of plain tables
- `energies`: the energies of models that are not in the paper, such as votes of neighbors
- `sequential`: the sequential rule, which adds the features one by one; `gains`: its compiled loops
- `tiles`: explanations and assignments of a row that do not depend on the other rows, for segmentations
- `nearest_centroid`: networks of centroids, for several metrics
- `verification`: the check that a model and its network predict the same clusters
- `agreement`: how well a network reproduces the labels of a clustering
- `adapters`: from fitted models to networks, one or more modules per library
- `numeric_network`: the base of the next two; `series_network`: `SeriesNetwork`, for models of time series
- `sequence_network`: `SequenceNetwork`, for hidden Markov models of a sequence of rows
- `torch_network`: a network as a torch module
- `scaling`, `onnx_network`: a nearest-centroid model, with its scalers, as an ONNX model
"""

from whycluster.core.passes import blends
from whycluster.core.rules import SEQUENTIAL
from whycluster.models.sequential import blend_block

blends[SEQUENTIAL] = blend_block
