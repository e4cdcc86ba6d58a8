"""The default path in C: k-means from rows to relevance, one block of rows per call.

``kmeans.c`` and ``kmeans_tile.h`` hold the loops. `loops` decides whether they can be used, builds their
parameters, and calls them for all rows.
"""
