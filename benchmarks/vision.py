"""Measure which part of the evidence is lost in vision encoders: ``python -m benchmarks.vision``.

The encoders have random weights and few, narrow layers, since no weights are downloaded. `RECIPES` shows how
to pass each kind of encoder to `whycluster.deep.DeepClustering`; the tests explain all of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

import whycluster as wc
from benchmarks.measure import write
from examples import minilm  # noqa: F401  # declares operators for torchvision, which timm imports
from whycluster.deep import DeepClustering, features

N_IMAGES, N_CLUSTERS = 12, 3
TINY: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
}
PATCHES: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 2, "num_heads": 3}
WINDOWS: dict[str, Any] = {
    "img_size": 32,
    "embed_dim": 24,
    "depths": (2, 2),
    "num_heads": (2, 4),
    "window_size": 4,
}


class Recipe(NamedTuple):
    """How to explain clusters of an encoder.

    Attributes
    ----------
    build : returns the encoder
    options : the options of `DeepClustering`
    size : the height and width of an image
    """

    build: Callable[[], Any]
    options: dict[str, Any]
    size: int = 32


def _timm(name: str, size: int = 32, **options: Any) -> Recipe:
    def build() -> Any:
        import timm  # imports torchvision, whose operators are declared by now

        return timm.create_model(name, num_classes=0, **options)

    return Recipe(build, {}, size)


def _transformers(name: str, pool: str | None, layer: str | None = None, **options: Any) -> Recipe:
    def build() -> Any:
        import transformers

        library: Any = transformers
        return getattr(library, f"{name}Model")(getattr(library, f"{name}Config")(**options))

    return Recipe(build, {"pool": pool, "layer": layer})


RECIPES = {
    "timm, ResNet-50": _timm("resnet50"),
    "timm, ConvNeXt": _timm("convnext_atto", depths=(1, 1, 2, 1)),
    "timm, ConvNeXt V2": _timm("convnextv2_atto", depths=(1, 1, 2, 1)),
    "timm, Swin": _timm("swin_tiny_patch4_window7_224", **WINDOWS),
    "timm, ViT": _timm("vit_tiny_patch16_224", **PATCHES),
    "timm, ViT, mean of patches": _timm("vit_tiny_patch16_224", **PATCHES, global_pool="avg"),
    "timm, DINOv2 with registers": _timm("vit_small_patch14_reg4_dinov2", **PATCHES),
    "timm, DINOv2 with registers and SwiGLU": _timm("vit_giant_patch14_reg4_dinov2", **PATCHES),
    "timm, CLIP": _timm("vit_base_patch16_clip_224", **PATCHES),
    "timm, SigLIP": _timm("vit_base_patch16_siglip_224", **PATCHES),
    "transformers, ResNet-50": _transformers("ResNet", "mean"),
    "transformers, ConvNeXt": _transformers(
        "ConvNext", "mean", hidden_sizes=[16, 32], depths=[1, 2], num_stages=2
    ),
    "transformers, Swin": _transformers(
        "Swin", "mean", image_size=32, embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=4
    ),
    "transformers, ViT": _transformers("ViT", "cls", **TINY, intermediate_size=64),
    "transformers, DINOv2 with registers and SwiGLU": _transformers(
        "Dinov2WithRegisters", "cls", **TINY, use_swiglu_ffn=True
    ),
    "transformers, DINOv2, mean of tokens": _transformers("Dinov2", "mean", **TINY),
    "transformers, CLIP": _transformers("CLIPVision", None, "post_layernorm", **TINY, intermediate_size=64),
    "transformers, CLIP, mean of tokens": _transformers("CLIPVision", "mean", **TINY, intermediate_size=64),
    "transformers, SigLIP": _transformers("SiglipVision", None, "head", **TINY, intermediate_size=64),
}


def with_random_weights(module: Any) -> Any:
    """Return a module in evaluation mode, whose biases, norms and scales differ from 0 and 1."""
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weights in module.named_parameters():
            is_scale = weights.ndim <= 1 and not name.endswith("bias")
            if is_scale or name.endswith("bias"):
                weights.copy_(float(is_scale) + 0.1 * torch.randn(weights.shape, generator=draw))
            elif float(weights.std()) < 1e-2:  # such as a class token that begins at almost 0
                weights.copy_(0.05 * torch.randn(weights.shape, generator=draw))
    return module.eval()


def explain(recipe: Recipe) -> Any:
    """Explain random images with an encoder of random weights, whose clusters have images as centers."""
    torch.manual_seed(0)
    module = with_random_weights(recipe.build())
    images = torch.randn(N_IMAGES, 3, recipe.size, recipe.size)
    centers = features(module, images, **recipe.options)[:N_CLUSTERS].reshape(N_CLUSTERS, -1)
    return wc.explain(DeepClustering(module, centers, reference="midpoint", **recipe.options), images)


def row(name: str, exp: Any) -> str:
    """Return the line of one encoder."""
    strength = float(np.abs(exp.evidence).sum())
    shares = exp.residual_shares
    token, lost = (
        100 * float(shares.get(key, np.zeros(1)).sum()) / strength
        for key in ("class token", "biases and losses of LRP")
    )
    cancels = float(np.abs(exp.relevance).sum()) / strength
    return f"| {name} | {token:.1f} % | {abs(lost):.2f} % | {cancels:.1f} |"


def main() -> None:
    """Explain all encoders and write the results."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # few images, which are enough to measure losses
    lines = [
        "# What vision encoders lose",
        "",
        f"Each encoder has random weights and, except for ResNet-50, few and narrow layers. It explains "
        f"{N_IMAGES} random images in {N_CLUSTERS} clusters, with the default rules and the midpoint as the "
        "reference.",
        "All numbers are relative to the evidence of all images: the relevance that a class token and "
        "registers receive, all other losses, and the absolute relevance of all pixel values.",
        "",
        "| encoder | class token | other losses | absolute relevance |",
        "|---|---:|---:|---:|",
    ]
    for name, recipe in RECIPES.items():
        lines.append(row(name, explain(recipe)))
        print(lines[-1], flush=True)
    write("vision", "python -m benchmarks.vision", lines)


if __name__ == "__main__":
    main()
