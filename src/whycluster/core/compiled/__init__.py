"""The default path in C: k-means from rows to relevance, one block of rows per call.

``kmeans.c`` and ``kmeans_tile.h`` hold the loops. `loops` builds their parameters, calls them for
all rows, and checks whether they run on this machine. `attribution` and `outputs` decide when to use them.
"""
