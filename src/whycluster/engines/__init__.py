"""Explanations where the data are: in containers that hold more than a table, and take the results too."""
