"""What stands before the clusters: steps of a pipeline, followed down to the columns that people know."""
