"""The estimators that we train: kernel k-means, and surrogates for labels."""
