"""Wording: how explanations are printed.

Modules, in reading order:

- `formatting`: the tables and lists in which explanations are printed
- `claims`: the claim about a row as a sentence
"""
