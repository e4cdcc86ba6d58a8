"""k-means from rows to relevance in C, one block of rows per call, and the gains of the sequential rule.

`loops` builds the parameters of ``kmeans.c`` and ``kmeans_tile.h``, calls them for all rows, and checks
whether they run on this machine. `whycluster.models.gains` calls ``sequential.c`` and ``sequential_row.h``.
``each_set.h`` includes the loops once per instruction set.
"""
