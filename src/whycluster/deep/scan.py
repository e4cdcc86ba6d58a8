"""SCAN's head (van Gansbeke et al., ECCV 2020): neighbours share a cluster, and clusters share the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from whycluster.core.errors import InvalidInputError
from whycluster.data.arrays import is_real, plain
from whycluster.data.progress import Progress
from whycluster.data.validation import check_whole

_BLOCK = 1 << 22  # numbers in a block of similarities, or of neighbours' probabilities: 16 MB
_SINGLE: Any = {"dtype": torch.float32, "device": "cpu"}  # whatever torch's defaults have been set to
_WHERE = "fit_scan"


def fit_scan(
    features: Any,
    n_clusters: int,
    *,
    neighbours: int = 20,
    entropy_weight: float = 5.0,
    n_epochs: int = 200,
    batch_size: int = 512,
    learning_rate: float = 0.01,
    n_init: int = 5,
    random_state: int = 0,
) -> torch.nn.Linear:
    """Train SCAN's linear head on features that stay as they are.

    With p = softmax(W x + b) the soft assignment of a row, and j a random one of the neighbours of row i,

        loss = - mean_i log <p_i, p_j>  -  entropy_weight H(mean_i p_i)

    is minimised by Adam: a row and its neighbours share a cluster, and the clusters share the rows. Several
    heads are trained side by side, each from a random start, and the one with the least loss over all rows
    and all their neighbours is returned. The cluster of a row is the argmax of ``head(x)``.

    For training, features are moved to mean 0 and divided by one number, so that their values have a standard
    deviation of 1 in all; neighbours are those with the greatest cosine then. That is folded into W and b:
    the head takes features as they are given here. A feature that never changes has weight 0. Features of
    different units should be standardised first.

    Everything is computed on the CPU. The random numbers of torch are left alone, and the same
    ``random_state`` gives the same head.

    Parameters
    ----------
    features : (n, d) array or tensor of finite numbers, the output of a network for n inputs
    n_clusters : how many clusters, from 2 to n
    neighbours : how many nearest neighbours of a row count as alike, from 1 to n - 1
    entropy_weight : how much even clusters are worth; with 0, all rows may end up in one cluster
    n_epochs : how often each row is seen
    batch_size : rows of one step, about; the evenness of clusters is judged on these, so that there should be
        several for each cluster. At most n.
    learning_rate : of Adam, at most 1
    n_init : how many heads are trained
    random_state : seed of starts, batches and choices of neighbours, a whole number from 0 to 2^63 - 1

    Returns
    -------
    torch.nn.Linear
        (n, d) to (n, n_clusters), in float64 for features in float64 and in float32 for all others

    Examples
    --------
    >>> import whycluster as wc
    >>> from sklearn.datasets import load_digits
    >>> pixels = load_digits().data
    >>> wc.deep.fit_scan(pixels, 10, n_epochs=2, n_init=1)
    Linear(in_features=64, out_features=10, bias=True)
    """
    with torch.inference_mode(False), torch.no_grad():
        rows = _checked_features(features)
        _check_parameters(len(rows), n_clusters, neighbours, batch_size)
        _check_training(n_epochs, n_init, random_state, learning_rate, entropy_weight)
        z, center, scale = _standardised(rows)
        near = _nearest(z, int(neighbours))
        heads = _Heads(z, int(n_init), int(n_clusters), float(entropy_weight), int(random_state))
        heads.train(z, near, int(n_epochs), min(int(batch_size), len(rows)), float(learning_rate))
        weight, bias = heads.best(z, near)
        return _folded(weight, bias, center, scale, rows.dtype)


def _checked_features(features: Any) -> torch.Tensor:
    """The features on the CPU, in float32 or float64; they may share the user's memory."""
    try:
        rows = _tensor(features)
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"{_WHERE}: features must be numbers in two dimensions (n, d); got {type(features).__name__} "
            f"that cannot be read as such."
        ) from None
    if rows.ndim != 2 or 0 in rows.shape or rows.is_complex():
        hint = " Pool or flatten them first: features.mean(axis=(2, 3))." if rows.ndim == 4 else ""
        raise InvalidInputError(
            f"{_WHERE}: features must be numbers in two dimensions (n, d); got {_kind(rows)} of shape "
            f"{tuple(rows.shape)}.{hint}"
        )
    if rows.dtype is not torch.float64:
        rows = rows.to(torch.float32)
    finite = rows.isfinite().all(dim=1)
    if not finite.all():
        row = int(finite.int().argmin())
        raise InvalidInputError(f"{_WHERE}: features must be finite; row {row} is not. Leave it out.")
    return rows


def _tensor(features: Any) -> torch.Tensor:
    if isinstance(features, torch.Tensor):
        if features.layout != torch.strided or features.is_meta or features.is_quantized:
            raise TypeError(features.layout)
        return features.detach().cpu()
    array = np.asarray(features)
    if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
        raise TypeError(array.dtype)
    if array.dtype.kind == "u":
        array = array.astype(np.float32)  # torch has few operations for most of these
    return torch.from_numpy(plain(array))


def _kind(rows: torch.Tensor) -> str:
    return str(rows.dtype).removeprefix("torch.")


def _check_parameters(n: int, n_clusters: Any, neighbours: Any, batch_size: Any) -> None:
    check_whole(n_clusters, 2, _WHERE, "n_clusters")
    if n_clusters > n:
        raise InvalidInputError(
            f"{_WHERE}: n_clusters must be at most the number of rows, {n}; got {n_clusters}."
        )
    check_whole(neighbours, 1, _WHERE, "neighbours")
    if neighbours >= n:
        raise InvalidInputError(
            f"{_WHERE}: neighbours must be less than the number of rows, {n}; got {neighbours}."
        )
    check_whole(batch_size, 1, _WHERE, "batch_size")


def _check_training(
    n_epochs: Any, n_init: Any, random_state: Any, learning_rate: Any, entropy_weight: Any
) -> None:
    check_whole(n_epochs, 1, _WHERE, "n_epochs")
    check_whole(n_init, 1, _WHERE, "n_init")
    check_whole(random_state, 0, _WHERE, "random_state")
    if random_state >= 1 << 63:
        raise InvalidInputError(f"{_WHERE}: random_state must be less than 2^63; got {random_state}.")
    if not is_real(learning_rate) or not 0 < learning_rate <= 1:
        raise InvalidInputError(
            f"{_WHERE}: learning_rate must be above 0 and at most 1; got {learning_rate!r}."
        )
    if not is_real(entropy_weight) or not 0 <= entropy_weight < float("inf"):
        raise InvalidInputError(
            f"{_WHERE}: entropy_weight must be a number of at least 0; got {entropy_weight!r}."
        )


def _standardised(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Features z = (x - center) / scale in float32, the center (d,) in float64, and the scale."""
    wide = rows.double()
    alike = (wide == wide[0]).all(dim=0)
    center = torch.where(alike, wide[0], wide.mean(dim=0))  # the mean would be rounded, and leave a rest
    z = wide - center
    largest = z.abs().max()
    scale = float(largest * (z / largest).square().mean().sqrt())  # so that no square overflows or vanishes
    if not 0.0 < scale < float("inf"):
        reason = "they overflow" if largest > 0 else "all rows are alike"
        raise InvalidInputError(
            f"{_WHERE}: features must differ from row to row, and their mean be finite; {reason}."
        )
    return (z / scale).float(), center, scale


def _nearest(z: torch.Tensor, n_near: int) -> torch.Tensor:
    """The rows with the greatest cosine with each row, (n, n_near), exactly; never the row itself."""
    unit = torch.nn.functional.normalize(z)
    size = min(len(z), max(1, _BLOCK // len(z)))
    near = torch.empty((len(z), n_near), dtype=torch.int64, device="cpu")
    block = torch.empty((size, len(z)), **_SINGLE)  # a new one for each would fragment memory: a GB and more
    with Progress("neighbours", -(-len(z) // size)) as bar:
        for start in range(0, len(z), size):
            rows = unit[start : start + size]
            cosine = torch.mm(rows, unit.T, out=block[: len(rows)])
            cosine.diagonal(start).fill_(-torch.inf)
            near[start : start + size] = cosine.topk(n_near).indices
            bar.step()
    return near


class _Heads:
    """Several linear heads side by side: one matrix product for all, and none has a part in another's loss.

    Parameters
    ----------
    z : (n, d) standardised features
    n_heads, n_clusters, entropy_weight : see `fit_scan`
    random_state : seed of all that is drawn
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
        changes = z.any(dim=0)  # without a gradient, the other features would keep their random weights
        self._weight = torch.where(changes[:, None], start, 0.0)
        self._bias = torch.zeros(size[1], **_SINGLE)

    def train(
        self, z: torch.Tensor, near: torch.Tensor, n_epochs: int, batch_size: int, learning_rate: float
    ) -> None:
        """Minimise the sum of all heads' losses; ``near`` has the neighbours of each row, (n, k)."""
        parameters = [self._weight.requires_grad_(), self._bias.requires_grad_()]
        optimizer = torch.optim.Adam(parameters, lr=learning_rate)
        n_batches = len(z) // batch_size  # of equal size but for one row
        with Progress("SCAN", n_epochs) as bar, torch.enable_grad():
            for _ in range(n_epochs):
                order = torch.randperm(len(z), generator=self._generator, device="cpu")
                for rows in order.tensor_split(n_batches):
                    optimizer.zero_grad()
                    self._batch_loss(z[rows], z[self._choose(near[rows])]).backward()  # type: ignore[no-untyped-call]  # torch has no type for it
                    optimizer.step()
                bar.step()

    def _choose(self, near: torch.Tensor) -> torch.Tensor:
        """A random one of each row's neighbours, (b,)."""
        size = (len(near), 1)
        choice = torch.randint(near.shape[1], size, generator=self._generator, device="cpu")
        return near.gather(1, choice)[:, 0]

    def _batch_loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The losses of all heads, added up, for rows and a neighbour of each."""
        log_p, log_q = self._log_probabilities(x), self._log_probabilities(y)
        losses = _disagreement(log_p, log_q).mean(dim=0) - self._entropy_weight * _evenness(log_p)
        return losses.sum()

    def _log_probabilities(self, z: torch.Tensor) -> torch.Tensor:
        """The log p of each row under each head, (b, H, K)."""
        return (z @ self._weight + self._bias).view(-1, *self._shape).log_softmax(dim=-1)

    def best(self, z: torch.Tensor, near: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The weight (K, d) and the bias (K,) of the head with the least loss."""
        weights = self._weight.view(-1, *self._shape).permute(1, 2, 0)
        biases = self._bias.view(self._shape)
        losses = torch.stack([self._loss(z, near, *head) for head in zip(weights, biases, strict=True)])
        least = int(losses.argmin())
        return weights[least], biases[least]

    def _loss(
        self, z: torch.Tensor, near: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
    ) -> torch.Tensor:
        """The loss of one head over all rows and all their neighbours."""
        log_p = (z @ weight.T + bias).log_softmax(dim=-1)
        size = max(1, _BLOCK // (near.shape[1] * len(bias)))
        parts = [
            _disagreement(log_p[start : start + size, None], log_p[near[start : start + size]]).sum()
            for start in range(0, len(z), size)
        ]
        return torch.stack(parts).sum() / near.numel() - self._entropy_weight * _evenness(log_p)


def _disagreement(log_p: torch.Tensor, log_q: torch.Tensor) -> torch.Tensor:
    """-log <p, q> along the last axis; never infinite, as the product of probabilities may be."""
    return -torch.logsumexp(log_p + log_q, dim=-1)


def _evenness(log_p: torch.Tensor) -> torch.Tensor:
    """The entropy along the last axis of the mean of p along the first."""
    log_mean = log_p.logsumexp(dim=0) - float(np.log(len(log_p)))
    return -(log_mean.exp() * log_mean).sum(dim=-1)


def _folded(
    weight: torch.Tensor, bias: torch.Tensor, center: torch.Tensor, scale: float, dtype: torch.dtype
) -> torch.nn.Linear:
    """The head for features as they were given: W (x - center) / scale + b."""
    weight = weight.double() / scale
    bias = bias.double() - weight @ center
    # On no device at first: torch would draw its values, and move the user's random numbers on
    head = torch.nn.Linear(weight.shape[1], len(weight), device="meta", dtype=dtype).to_empty(device="cpu")
    head.weight.copy_(weight)
    head.bias.copy_(bias)
    return head
