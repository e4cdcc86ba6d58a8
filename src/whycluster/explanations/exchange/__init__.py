"""Explanations and summaries for other programs.

Modules, in reading order:

- `plain`: explanations and summaries as plain data, for JSON
- `json_values`: single values as JSON
- `arrow`: tables through the Arrow PyCapsule interface
- ``schema-1.json``: the JSON schema of the plain data
"""
