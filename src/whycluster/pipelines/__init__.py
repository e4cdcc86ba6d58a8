"""Steps before a model, followed as affine forms of the columns."""
