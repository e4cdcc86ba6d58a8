"""Train the head of SCAN (van Gansbeke et al., ECCV 2020), which assigns neighbors to the same cluster."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from whycluster.core.errors import InvalidInputError
from whycluster.data.arrays import is_real
from whycluster.data.validation import check_integer
from whycluster.deep.encoder import track
from whycluster.deep.tensors import from_numpy, is_dense

_BLOCK = 1 << 22  # number of values (16 MB) per block of similarities or of neighbors' probabilities
_SINGLE: Any = {"dtype": torch.float32, "device": "cpu"}  # independent of torch's defaults
_WHERE = "fit_scan"


def fit_scan(
    features: Any,
    n_clusters: int,
    *,
    neighbors: int = 20,
    entropy_weight: float = 5.0,
    n_epochs: int = 200,
    batch_size: int = 512,
    learning_rate: float = 0.01,
    n_init: int = 5,
    random_state: int = 0,
) -> torch.nn.Linear:
    """Train the linear head of SCAN on fixed features.

    Let p = softmax(W x + b) be the soft assignment of a row, and j a random neighbor of row i. Adam minimizes

        loss = - mean_i log <p_i, p_j>  -  entropy_weight H(mean_i p_i) .

    The first term assigns a row and its neighbors to the same cluster; the second balances the clusters.
    Several heads are trained side by side from random starts. The result is the head with the smallest loss
    over all rows and all their neighbors. The cluster of a row is the argmax of ``head(x)``.

    For training, features are centered and divided by one number, which makes their overall standard
    deviation 1. Neighbors are the rows with the largest cosine similarity after this scaling. W and b include
    this scaling, so the head takes the original features. Constant features receive weight 0. If the features
    have different units, standardize them first.

    Training runs on the CPU. It leaves torch's random state unchanged, and the same ``random_state`` always
    produces the same head.

    Parameters
    ----------
    features : (n, d) array or tensor of finite numbers, such as the output of a network for n inputs
    n_clusters : the number of clusters, from 2 to n
    neighbors : the number of nearest neighbors of a row that should share its cluster, from 1 to n - 1
    entropy_weight : the weight of balanced clusters; with 0, all rows may end up in one cluster
    n_epochs : the number of passes over all rows
    batch_size : the approximate number of rows per step, at most n. The balance of the clusters is measured
        per batch, so a batch should hold several rows for each cluster.
    learning_rate : the learning rate of Adam, at most 1
    n_init : the number of heads to train
    random_state : the seed for starting values, batches and choices of neighbors, a nonnegative integer less
        than 2^63

    Returns
    -------
    torch.nn.Linear
        a head that maps (n, d) to (n, n_clusters), in float64 if the features are float64, else in float32

    Examples
    --------
    >>> import whycluster as wc
    >>> from sklearn.datasets import load_digits
    >>> pixels = load_digits().data
    >>> wc.deep.fit_scan(pixels, 10, n_epochs=2, n_init=1)
    Linear(in_features=64, out_features=10, bias=True)
    """
    with torch.inference_mode(False), torch.no_grad():
        rows = _read_features(features)
        _check_sizes(len(rows), n_clusters, neighbors, batch_size)
        _check_training(n_epochs, n_init, random_state, learning_rate, entropy_weight)
        z, center, scale = _standardize(rows)
        near = _nearest(z, int(neighbors))
        heads = _Heads(z, int(n_init), int(n_clusters), float(entropy_weight), int(random_state))
        heads.train(z, near, int(n_epochs), min(int(batch_size), len(rows)), float(learning_rate))
        weight, bias = heads.best(z, near)
        return _linear_head(weight, bias, center, scale, rows.dtype)


def _read_features(features: Any) -> torch.Tensor:
    """Return the features on the CPU in float32 or float64, sharing the user's memory if possible."""
    try:
        rows = _to_tensor(features)
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"{_WHERE}: features must be a numeric array of shape (n, d); got a value of type "
            f"{type(features).__name__} that cannot be converted to one."
        ) from None
    if rows.ndim != 2 or 0 in rows.shape or rows.is_complex():
        hint = " Pool or flatten them first: features.mean(axis=(2, 3))." if rows.ndim == 4 else ""
        raise InvalidInputError(
            f"{_WHERE}: features must be a numeric array of shape (n, d); got "
            f"{str(rows.dtype).removeprefix('torch.')} of shape {tuple(rows.shape)}.{hint}"
        )
    if rows.dtype is not torch.float64:
        rows = rows.to(torch.float32)
    finite = rows.isfinite().all(dim=1)
    if not finite.all():
        row = int(finite.int().argmin())
        raise InvalidInputError(
            f"{_WHERE}: features must be finite; row {row} contains NaN or infinite values. Drop such rows."
        )
    return rows


def _to_tensor(features: Any) -> torch.Tensor:
    if isinstance(features, torch.Tensor):
        if not is_dense(features):
            raise TypeError(features.layout)
        return features.detach().cpu()
    array = np.asarray(features)
    if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
        raise TypeError(array.dtype)
    if array.dtype.kind == "u":
        array = array.astype(np.float32)  # torch supports few operations on unsigned integers
    return from_numpy(array)


def _check_sizes(n: int, n_clusters: Any, neighbors: Any, batch_size: Any) -> None:
    check_integer(n_clusters, 2, _WHERE, "n_clusters")
    if n_clusters > n:
        raise InvalidInputError(
            f"{_WHERE}: n_clusters must be at most the number of rows, {n}; got {n_clusters}."
        )
    check_integer(neighbors, 1, _WHERE, "neighbors")
    if neighbors >= n:
        raise InvalidInputError(
            f"{_WHERE}: neighbors must be less than the number of rows, {n}; got {neighbors}."
        )
    check_integer(batch_size, 1, _WHERE, "batch_size")


def _check_training(
    n_epochs: Any, n_init: Any, random_state: Any, learning_rate: Any, entropy_weight: Any
) -> None:
    check_integer(n_epochs, 1, _WHERE, "n_epochs")
    check_integer(n_init, 1, _WHERE, "n_init")
    check_integer(random_state, 0, _WHERE, "random_state")
    if random_state >= 1 << 63:
        raise InvalidInputError(f"{_WHERE}: random_state must be less than 2^63; got {random_state}.")
    if not is_real(learning_rate) or not 0 < learning_rate <= 1:
        raise InvalidInputError(
            f"{_WHERE}: learning_rate must be above 0 and at most 1; got {learning_rate!r}."
        )
    if not is_real(entropy_weight) or not 0 <= entropy_weight < float("inf"):
        raise InvalidInputError(
            f"{_WHERE}: entropy_weight must be a nonnegative number; got {entropy_weight!r}."
        )


def _standardize(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Return z = (x - center) / scale in float32, the center (d,) in float64, and the scale."""
    rows = rows.double()
    constant = (rows == rows[0]).all(dim=0)
    center = torch.where(constant, rows[0], rows.mean(dim=0))  # a rounded mean would leave a remainder
    z = rows - center
    largest = z.abs().max()
    scale = float(largest * (z / largest).square().mean().sqrt())  # so that no square overflows or underflows
    if not 0.0 < scale < float("inf"):
        reason = "they overflow" if largest > 0 else "all rows are equal"
        raise InvalidInputError(
            f"{_WHERE}: features must vary between rows and have a finite mean; {reason}."
        )
    return (z / scale).float(), center, scale


def _nearest(z: torch.Tensor, n_near: int) -> torch.Tensor:
    """Return the positions of the other rows with the largest cosine similarity to each row, (n, n_near)."""
    unit = torch.nn.functional.normalize(z)
    size = min(len(z), max(1, _BLOCK // len(z)))
    near = torch.empty((len(z), n_near), dtype=torch.int64, device="cpu")
    block = torch.empty((size, len(z)), **_SINGLE)  # reused, since fragmentation would waste over 1 GB
    for start in track("neighbors", range(0, len(z), size)):
        rows = unit[start : start + size]
        cosine = torch.mm(rows, unit.T, out=block[: len(rows)])
        cosine.diagonal(start).fill_(-torch.inf)
        near[start : start + size] = cosine.topk(n_near).indices
    return near


class _Heads:
    """Several linear heads that are trained together with a single matrix product.

    Parameters
    ----------
    z : (n, d) standardized features
    n_heads : the number of heads
    n_clusters, entropy_weight, random_state : as in `fit_scan`
    """

    def __init__(
        self, z: torch.Tensor, n_heads: int, n_clusters: int, entropy_weight: float, random_state: int
    ) -> None:
        self._shape = (n_heads, n_clusters)
        self._entropy_weight = entropy_weight
        self._generator = torch.Generator().manual_seed(random_state)
        n_features = z.shape[1]
        size = (n_features, n_heads * n_clusters)
        start = torch.randn(size, generator=self._generator, **_SINGLE) / n_features**0.5
        changes = z.any(dim=0)  # constant features have no gradient and would keep random weights
        self._weight = torch.where(changes[:, None], start, 0.0)
        self._bias = torch.zeros(size[1], **_SINGLE)

    def train(
        self, z: torch.Tensor, near: torch.Tensor, n_epochs: int, batch_size: int, learning_rate: float
    ) -> None:
        """Minimize the sum of the losses of all heads, where ``near`` lists each row's neighbors, (n, k)."""
        parameters = [self._weight.requires_grad_(), self._bias.requires_grad_()]
        optimizer = torch.optim.Adam(parameters, lr=learning_rate)
        n_batches = len(z) // batch_size  # batch sizes differ by at most one row
        with torch.enable_grad():
            for _ in track("SCAN", range(n_epochs)):
                order = torch.randperm(len(z), generator=self._generator, device="cpu")
                for rows in order.tensor_split(n_batches):
                    optimizer.zero_grad()
                    self._batch_loss(z[rows], z[self._choose(near[rows])]).backward()  # type: ignore[no-untyped-call]  # untyped in torch
                    optimizer.step()

    def _choose(self, near: torch.Tensor) -> torch.Tensor:
        """Return a random neighbor of each row, (b,)."""
        size = (len(near), 1)
        choice = torch.randint(near.shape[1], size, generator=self._generator, device="cpu")
        return near.gather(1, choice)[:, 0]

    def _batch_loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the sum of the losses of all heads for rows and one neighbor of each row."""
        log_p, log_q = self._log_probabilities(x), self._log_probabilities(y)
        losses = _disagreement(log_p, log_q).mean(dim=0) - self._entropy_weight * _entropy_of_mean(log_p)
        return losses.sum()

    def _log_probabilities(self, z: torch.Tensor) -> torch.Tensor:
        """Return log p of each row under each head, (b, H, K)."""
        return (z @ self._weight + self._bias).view(-1, *self._shape).log_softmax(dim=-1)

    def best(self, z: torch.Tensor, near: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the weight (K, d) and the bias (K,) of the head with the smallest loss."""
        weights = self._weight.view(-1, *self._shape).permute(1, 2, 0)
        biases = self._bias.view(self._shape)
        losses = torch.stack([self._loss(z, near, *head) for head in zip(weights, biases, strict=True)])
        least = int(losses.argmin())
        return weights[least], biases[least]

    def _loss(
        self, z: torch.Tensor, near: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
    ) -> torch.Tensor:
        """Return the loss of one head over all rows and all their neighbors."""
        log_p = (z @ weight.T + bias).log_softmax(dim=-1)
        size = max(1, _BLOCK // (near.shape[1] * len(bias)))
        parts = [
            _disagreement(log_p[start : start + size, None], log_p[near[start : start + size]]).sum()
            for start in range(0, len(z), size)
        ]
        return torch.stack(parts).sum() / near.numel() - self._entropy_weight * _entropy_of_mean(log_p)


def _disagreement(log_p: torch.Tensor, log_q: torch.Tensor) -> torch.Tensor:
    """Return -log <p, q> along the last axis, computed in log space to avoid underflow."""
    return -torch.logsumexp(log_p + log_q, dim=-1)


def _entropy_of_mean(log_p: torch.Tensor) -> torch.Tensor:
    """Return the entropy, along the last axis, of the mean of p along the first axis."""
    log_mean = log_p.logsumexp(dim=0) - float(np.log(len(log_p)))
    return -(log_mean.exp() * log_mean).sum(dim=-1)


def _linear_head(
    weight: torch.Tensor, bias: torch.Tensor, center: torch.Tensor, scale: float, dtype: torch.dtype
) -> torch.nn.Linear:
    """Return the head for the original features: W (x - center) / scale + b."""
    weight = weight.double() / scale
    bias = bias.double() - weight @ center
    # Created on the meta device, since random initial values would change the user's random state
    head = torch.nn.Linear(weight.shape[1], len(weight), device="meta", dtype=dtype).to_empty(device="cpu")
    head.weight.copy_(weight)
    head.bias.copy_(bias)
    return head
