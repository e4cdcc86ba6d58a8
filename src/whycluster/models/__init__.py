"""Networks, and the adapters that make them of fitted models."""
