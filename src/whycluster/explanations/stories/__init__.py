"""Stories: one row in words, and the rows and clusters that it is compared with.

Modules, in reading order:

- `story`: the rank of a row's evidence, typical values elsewhere, and the competitors
- `rivals`: the clusters that a feature is compared with
- `member_sample`: a sample of the members of all clusters
"""
