"""Explanations, and what can be read from them."""
