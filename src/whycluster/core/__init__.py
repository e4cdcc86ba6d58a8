"""The method of the paper: from the energies of a model to the relevance of every feature.

This folder requires only NumPy, plus threadpoolctl to limit the number of BLAS threads.

Reading order: `energies` (models as energies s_k and their splits e_k), `evidence` (h_k and f_c, Props. 1, 6
and 7), `rules` (the weights of the competitors, Eqs. 2-4), `attribution` (all rows: beta and relevance),
`passes` (the steps for each block of rows), `outputs` (evidence, competition and gradients of all
rows). The remaining modules support the ones above: `rows` (the interface to the data), `blocks` (threads),
`compiled` (the same method in C, for k-means), `arrays` and `errors`.
"""
