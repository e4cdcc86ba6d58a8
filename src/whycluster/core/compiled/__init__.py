"""The compiled loops of k-means, and their Python side."""
