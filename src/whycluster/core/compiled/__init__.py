"""k-means from rows to relevance in C, one block of rows per call, and the gains of the sequential rule.

``kmeans.c`` and ``kmeans_tile.h`` hold the loops for k-means. `loops` builds their parameters, calls them for
all rows, and checks whether they run on this machine. `attribution` and `outputs` decide when to use them.
``sequential.c`` and ``sequential_row.h`` hold the loops for the gains, which `whycluster.models.gains` calls.
``each_set.h`` includes the loops once per instruction set.
"""
