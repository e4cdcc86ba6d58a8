"""Maps of the rows, and the styles of clusters, which plots and reports share.

Modules, in reading order:

- `projection`: the map of the rows
- `cluster_styles`: the colors and shapes of clusters
"""
