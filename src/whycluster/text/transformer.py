"""Sentence encoders that read pieces in context, with LRP from embeddings to pieces. Needs torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from whycluster.core.arrays import Floats
from whycluster.core.errors import InvalidInputError, UnsupportedModelError
from whycluster.deep.encoder import MASK, check_mode, pool_tokens, track
from whycluster.deep.lrp.composites import composite_of
from whycluster.deep.lrp.propagation import first_tensor, trace
from whycluster.deep.tensors import to_numpy
from whycluster.text.alignment import Span
from whycluster.text.encoder import check_loaded

POOLINGS = ("mean", "cls", "max", "last")
_ENDLESS = 1 << 20  # tokenizers without a maximum length report an absurdly large one


class ReadPieces(NamedTuple):
    """The pieces of one text that the encoder read, with their relevance.

    Attributes
    ----------
    relevance : (t,) the relevance of each piece
    spans : the characters of the text that each piece covers; an empty span for all others
    special, unknown, prompt : (t,) whether a piece is a special token, unknown, or part of the prompt
    lost : the relevance that reached no piece, such as that of biases
    is_full : whether the encoder could not have read more pieces
    """

    relevance: Floats
    spans: list[Span]
    special: NDArray[np.bool_]
    unknown: NDArray[np.bool_]
    prompt: NDArray[np.bool_]
    lost: float
    is_full: bool


@dataclass(frozen=True)
class TransformerModel:
    """A transformer with its tokenizer, and the settings that turn its outputs into embeddings.

    Attributes
    ----------
    module : a SentenceTransformer, or a model from transformers
    tokenizer : the tokenizer
    table : the name of the layer that looks up the vectors of pieces
    pooling : how the outputs for all pieces become one embedding, or None if the module does it
    normalize : whether embeddings are scaled to unit length afterward
    prompt : a text that is prepended to every text
    max_length : the largest number of pieces that the encoder reads, or None
    n_features : the number of features of an embedding
    truncate_dim : the number of features to keep, or None
    batch_size : the number of texts per batch
    """

    module: torch.nn.Module
    tokenizer: Any
    table: str
    pooling: str | None
    normalize: bool
    prompt: str
    max_length: int | None
    n_features: int
    truncate_dim: int | None
    batch_size: int

    def embed(self, texts: Sequence[str], where: str) -> NDArray[Any]:
        """Return the embeddings, (n, d), in float32 or in the precision of the model if that is higher."""
        self._check_module(where)
        parts: list[NDArray[Any]] = []
        batches = self._batches(texts)
        for rows in track("encoding", batches):
            features = self._tokenize([texts[row] for row in rows])
            with torch.no_grad():
                parts.append(to_numpy(self._forward(features)))
        order = np.concatenate([np.asarray(rows) for rows in batches])
        joined = np.concatenate(parts)
        result = np.empty_like(joined)
        result[order] = joined
        bad = np.flatnonzero(~np.isfinite(result).all(axis=1))
        if len(bad):
            raise InvalidInputError(
                f"{where}: embeddings must be finite; the model returns NaN or infinite values for document "
                f"{bad[0]}. A model in half precision may overflow: try model.float()."
            )
        return result

    def relevance(self, texts: Sequence[str], seeds: Floats, where: str) -> Iterator[tuple[int, ReadPieces]]:
        """Propagate the relevance of embeddings, (n, d); yield the position and the pieces of each text."""
        if not getattr(self.tokenizer, "is_fast", False):
            raise UnsupportedModelError(
                f"{where}: the tokenizer must report the position of each piece in the text; "
                f"{type(self.tokenizer).__name__} does not. Use a fast tokenizer, such as "
                "AutoTokenizer.from_pretrained(name)."
            )
        composite = composite_of("text", "text", where)
        for rows in track("explaining", self._batches(texts)):
            chosen = [texts[row] for row in rows]
            features, pieces = self._tokenize(chosen), self._locate(chosen)

            def forward(_: Any, features: dict[str, Any] = features) -> torch.Tensor:
                return self._forward(features)

            traced = trace(self.module, None, forward, where, self.table)
            seed = traced.seed(seeds[rows])
            found = to_numpy(traced.propagate(seed, composite, self.table, last=True).sum(-1))
            for i, row in enumerate(rows):
                yield (
                    row,
                    self._read(pieces, features, i, found[i].astype(np.float64), float(seeds[row].sum())),
                )

    def _read(
        self, pieces: dict[str, Any], features: dict[str, Any], i: int, relevance: Floats, total: float
    ) -> ReadPieces:
        there = features[MASK][i].cpu().numpy() > 0
        ids = features["input_ids"][i].cpu().numpy()[there]
        special, offsets = (np.asarray(pieces[key][i]) for key in ("special_tokens_mask", "offset_mapping"))
        n_before = len(self.prompt)
        spans = np.maximum(offsets - n_before, 0)
        prompt = (special == 0) & (offsets[:, 1] > offsets[:, 0]) & (offsets[:, 1] <= n_before)
        unknown = ids == getattr(self.tokenizer, "unk_token_id", None)
        return ReadPieces(
            relevance[there],
            [(int(start), int(stop)) for start, stop in spans],
            (special != 0) & ~unknown,
            np.asarray(unknown),
            np.asarray(prompt),
            total - float(relevance[there].sum()),
            self.max_length is not None and int(there.sum()) >= self.max_length,
        )

    def _batches(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the positions of the texts in batches; texts of similar length are together."""
        order = np.argsort([-len(text) for text in texts], kind="stable").tolist()
        return [order[i : i + self.batch_size] for i in range(0, len(order), self.batch_size)]

    def _tokenize(self, texts: Sequence[str]) -> dict[str, Any]:
        """Return the inputs of the module for some texts."""
        found = self.tokenizer(self._prompted(texts), padding=True, return_tensors="pt", **self._truncation)
        device = next(self.module.parameters()).device
        features = {key: value.to(device) for key, value in found.items()}
        if self.prompt and self.pooling is None:
            features["prompt_length"] = self._prompt_length()
        return features

    def _locate(self, texts: Sequence[str]) -> dict[str, Any]:
        """Return, without padding, the position of each piece and whether it is a special token."""
        found: dict[str, Any] = self.tokenizer(
            self._prompted(texts),
            return_offsets_mapping=True,
            return_special_tokens_mask=True,
            **self._truncation,
        )
        return found

    @property
    def _truncation(self) -> dict[str, Any]:
        return {} if self.max_length is None else {"truncation": True, "max_length": self.max_length}

    def _prompted(self, texts: Sequence[str]) -> list[str]:
        return [self.prompt + text for text in texts]

    def _prompt_length(self) -> int:
        """Return the number of pieces of the prompt, including a special token before it."""
        ids = self.tokenizer(self.prompt)["input_ids"]
        return len(ids) - (ids[-1] in self.tokenizer.all_special_ids)

    def _forward(self, features: dict[str, Any]) -> torch.Tensor:
        """Return the embeddings of a batch."""
        found = self.module(dict(features)) if self.pooling is None else self.module(**features)
        rows = first_tensor(found)
        if rows is None:
            raise UnsupportedModelError(
                f"Sentences: the model must return a tensor; got {type(found).__name__}."
            )
        if self.pooling is not None:
            rows = _pool(rows, features[MASK], self.pooling)
        if self.truncate_dim is not None:
            rows = rows[:, : self.truncate_dim]
        return torch.nn.functional.normalize(rows, dim=1) if self.normalize else rows

    def _check_module(self, where: str) -> None:
        check_mode(self.module, where, "model", "embeddings")
        check_loaded(self.module, where)


def _pool(rows: torch.Tensor, mask: torch.Tensor, pooling: str) -> torch.Tensor:
    """Return one embedding per text; ``rows`` has one row per piece, (n, t, d)."""
    if rows.ndim == 2:
        return rows
    if pooling in ("mean", "max"):
        return pool_tokens(rows, mask, pooling)
    there = mask.to(torch.int32)
    first = there.argmax(1)
    place = first if pooling == "cls" else mask.shape[1] - 1 - there.flip(1).argmax(1)
    return rows.gather(1, place[:, None, None].expand(-1, 1, rows.shape[2])).squeeze(1)


def from_sentence_transformers(
    model: Any, normalize: bool | None, prompt: str | None, max_length: int | None, batch_size: int
) -> TransformerModel:
    """Return the encoder of a SentenceTransformer, which pools and normalizes as the model does."""
    _check_length(max_length, model)
    size = model.max_seq_length if max_length is None else max_length
    if prompt is None and model.default_prompt_name is not None:
        prompt = model.prompts.get(model.default_prompt_name)
    dimension = getattr(model, "get_embedding_dimension", None) or model.get_sentence_embedding_dimension
    return TransformerModel(
        module=model,
        tokenizer=model.tokenizer,
        table=_table_of(model),
        pooling=None,
        normalize=bool(normalize),
        prompt=prompt or "",
        max_length=_length(size, model.tokenizer, model),
        n_features=int(dimension()),
        truncate_dim=model.truncate_dim,
        batch_size=batch_size,
    )


def from_transformers(
    model: Any,
    tokenizer: Any,
    pooling: str | None,
    normalize: bool | None,
    prompt: str | None,
    max_length: int | None,
    batch_size: int,
) -> TransformerModel:
    """Return the encoder of a model from transformers, with a pooling of its outputs."""
    _check_length(max_length, model)
    size = max_length or min(
        getattr(tokenizer, "model_max_length", _ENDLESS),
        getattr(model.config, "max_position_embeddings", None) or _ENDLESS,
    )
    return TransformerModel(
        module=model,
        tokenizer=tokenizer,
        table=_table_of(model),
        pooling=pooling or "mean",
        normalize=bool(normalize),
        prompt=prompt or "",
        max_length=_length(size, tokenizer, model),
        n_features=int(model.config.hidden_size),
        truncate_dim=None,
        batch_size=batch_size,
    )


def _check_length(max_length: int | None, module: torch.nn.Module) -> None:
    most = _n_positions(module)
    if max_length is not None and max_length > most:
        raise InvalidInputError(
            f"Sentences: max_length must be at most {most}, the number of positions of the model; got "
            f"{max_length}."
        )


def _length(size: int | None, tokenizer: Any, module: torch.nn.Module) -> int | None:
    size = getattr(tokenizer, "model_max_length", None) if size is None else size
    size = min(_ENDLESS if size is None else int(size), _n_positions(module))
    return None if size >= _ENDLESS else size


def _n_positions(module: torch.nn.Module) -> int:
    """Return the number of pieces for which a table of positions has room; without a table, it is endless."""
    for name, layer in module.named_modules():
        if name.endswith("position_embeddings") and isinstance(layer, torch.nn.Embedding):
            unused = 0 if layer.padding_idx is None else layer.padding_idx + 1
            return layer.num_embeddings - unused
    return _ENDLESS


def _table_of(module: torch.nn.Module) -> str:
    """Return the name of the layer that looks up the vectors of pieces."""
    tables = [table for part in module.modules() if (table := _input_embeddings(part)) is not None]
    if not tables:
        raise UnsupportedModelError(
            f"Sentences: the model must look up a vector for each piece of a text (get_input_embeddings); "
            f"{type(module).__name__} has no such layer."
        )
    # T5 names a layer that it does not run. The one that runs is in an inner part and has the same weights.
    table = [each for each in tables if each.weight is tables[0].weight][-1]
    return str(next(name for name, each in module.named_modules() if each is table))


def _input_embeddings(part: Any) -> Any:
    """Return the layer that a part of a model names as its table of pieces, or None."""
    try:
        return part.get_input_embeddings() if hasattr(part, "get_input_embeddings") else None
    except NotImplementedError:  # character models have no table that transformers can find
        return None
