"""Maps: what plots and reports of the rows have in common.

Modules, in reading order:

- `projection`: the map of the rows
- `cluster_styles`: the colors and shapes of clusters
"""
