"""The user's data: arrays, sparse matrices, data frames, mixed columns and labels.

Read in this order:

- `table`: `Table`, the rows in their container, and `ArrayTable` for NumPy arrays
- `opening`: `open_table`, which checks the data and picks the table class
- `sparse_table`, `frame_table`, `mixed_table`, `absent_table`, `context_table`: the other table classes
- `cells`: individual cells of any container
- `column_kinds`, `missing`, `days`, `iso_dates`: what a column holds, which values are missing, dates as
  numbers, dates in text
- `columns`, `column_checks`: columns read as numbers, days or text, and classified for clustering
- `usual_rows`: rows that are far from everything that a network knows
- `groups`: means, sums and frequencies of groups of rows
- `labels`: cluster labels and their codes
- `frames`: results as data frames
- `display`, `settings`, `progress`: text for messages and terminals
- `registry`: functions of higher layers that objects of lower layers offer as methods
- `sql_quoting`: names and values in SQL
- `warnings`: the warnings of the package
- `files`, `spreadsheets`, `validation`, `arrays`, `elementwise`: small helpers
"""
