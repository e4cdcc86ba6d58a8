"""What users hand over: arrays, sparse matrices, frames, mixed columns, labels."""
