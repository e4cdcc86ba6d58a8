"""Changes: who moved between the clusters of a segmentation from one table to the next, and why.

In reading order:

- `comparing`: `changes`, which compares two tables
- `pairing`: the rows that both tables have, by their ids
- `units`: columns that changed by the same factor in all rows
- `matching`: the clusters of an old and a new segmentation that correspond to each other
- `accounts`: what each column contributed to a move
- `paths`: the same for energies in which the columns depend on each other
- `flows`: the moves between each pair of clusters, and what drove them
- `drift`: which columns changed within clusters
- `record`: all of this as plain data
- `row_change`, `sentences`, `frames`, `page`: one row, the summary, data frames and the HTML report
- `result`: `Changes`, the public interface
"""
