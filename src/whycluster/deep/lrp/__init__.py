"""Torch encoders: what their forward pass does, and relevance back through it (LRP)."""
