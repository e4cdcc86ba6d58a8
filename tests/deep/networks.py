"""Small networks of common kinds, each written in the usual style of its kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  # the usual name

Tensor = torch.Tensor


def settled(module: Any, seed: int = 0) -> Any:
    """Return a module in evaluation mode, with biases and batch norms of both signs, as after training."""
    draw = torch.Generator().manual_seed(seed)
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            _settle_batch_norm(part, draw)
        elif isinstance(part, nn.LayerNorm) and part.elementwise_affine:
            nn.init.normal_(part.weight, 1.0, 0.3, generator=draw)
            nn.init.normal_(part.bias, 0.0, 0.1, generator=draw)
        elif isinstance(part, nn.MultiheadAttention):
            nn.init.xavier_uniform_(part.in_proj_weight, generator=draw)
            nn.init.normal_(part.in_proj_bias, 0.0, 0.1, generator=draw)
        elif isinstance(part, (nn.Conv1d, nn.Conv2d, nn.ConvTranspose2d, nn.Linear)):
            nn.init.kaiming_normal_(part.weight, generator=draw)
            if part.bias is not None:
                nn.init.normal_(part.bias, 0.0, 0.1, generator=draw)
    return module.eval()


def _settle_batch_norm(part: Any, draw: torch.Generator) -> None:
    nn.init.uniform_(part.weight, 0.5, 1.5, generator=draw)
    with torch.no_grad():
        part.weight[::3] *= -1
    nn.init.normal_(part.bias, 0.0, 0.1, generator=draw)
    nn.init.normal_(part.running_mean, 0.0, 0.2, generator=draw)
    nn.init.uniform_(part.running_var, 0.5, 2.0, generator=draw)


def mlp(bias: bool = True) -> Any:
    return settled(
        nn.Sequential(
            nn.Linear(6, 10, bias=bias),
            nn.ReLU(),
            nn.Linear(10, 8, bias=bias),
            nn.Tanh(),
            nn.Linear(8, 5, bias=bias),
        )
    )


def conv_net() -> Any:
    """Return convolutions with batch norm, both kinds of pooling, groups, strides and dilation."""
    return settled(
        nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1),
            nn.BatchNorm2d(6),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 6, 3, padding=2, dilation=2, groups=3, bias=False),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(24, 5),
            nn.BatchNorm1d(5),
        )
    )


class VGG16(nn.Module):
    """The convolutions of VGG-16, with the names of torchvision."""

    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        width = 3
        for n_layers, channels in ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)):
            for _ in range(n_layers):
                layers += [nn.Conv2d(width, channels, 3, padding=1, bias=bias), nn.ReLU(inplace=True)]
                width = channels
            layers.append(nn.MaxPool2d(2, 2))
        self.features = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.features(x)
        return features


class BasicBlock(nn.Module):
    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(n_out)
        self.relu = nn.ReLU(inplace=True)  # used twice
        self.conv2 = nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(n_out)
        self.downsample: nn.Module | None = None
        if stride != 1 or n_in != n_out:
            self.downsample = nn.Sequential(
                nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out)
            )

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        rectified: Tensor = self.relu(out)
        return rectified


class ResNet18(nn.Module):
    """ResNet-18 as in torchvision, with any width."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        for i in range(1, 5):
            n_in, n_out, stride = widths[i - 1], widths[i], 1 if i == 1 else 2
            stage = nn.Sequential(BasicBlock(n_in, n_out, stride), BasicBlock(n_out, n_out, 1))
            setattr(self, f"layer{i}", stage)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(widths[-1], 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for i in range(1, 5):
            x = getattr(self, f"layer{i}")(x)
        logits: Tensor = self.fc(torch.flatten(self.avgpool(x), 1))
        return logits


class OwnResidual(nn.Module):
    """A network of functions and operators instead of modules; one module runs twice."""

    def __init__(self, width: int = 5) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.shared = nn.Conv2d(width, width, 3, padding=1)
        self.weight = nn.Parameter(torch.randn(4, width, generator=torch.Generator().manual_seed(1)))

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))
        y = torch.add(x, self.shared(x), alpha=0.5)
        y = F.relu_(y)
        z = self.shared(F.max_pool2d(y, 2))
        z += F.avg_pool2d(y, 2)
        return F.linear(z.relu().mean(dim=(2, 3)), self.weight)


class Attention(nn.Module):
    """Self-attention as in vision transformers: one matrix for q, k and v, then the function of torch."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, n_tokens, width = x.shape
        q, k, v = self.qkv(x).reshape(n, n_tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        x = F.scaled_dot_product_attention(q, k, v)
        projected: Tensor = self.proj(x.transpose(1, 2).reshape(n, n_tokens, width))
        return projected


class ViTBlock(nn.Module):
    def __init__(self, width: int, heads: int, module: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.module = module
        self.attention: nn.Module = (
            nn.MultiheadAttention(width, heads, batch_first=True) if module else Attention(width, heads)
        )
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        y = self.attention(y, y, y, need_weights=False)[0] if self.module else self.attention(y)
        x = x + y
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


class ViT(nn.Module):
    """A vision transformer; with ``module``, its attention is the module of torch, else the function."""

    def __init__(self, module: bool = True, width: int = 8, heads: int = 2, depth: int = 2) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(2)
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, width, generator=draw))
        self.positions = nn.Parameter(0.3 * torch.randn(1, 5, width, generator=draw))
        self.dropout = nn.Dropout(0.1)
        self.blocks = nn.Sequential(*[ViTBlock(width, heads, module) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], dim=1) + self.positions
        tokens: Tensor = self.norm(self.blocks(self.dropout(x)))
        return tokens[:, 0]


class Autoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 4, 3, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(4, 6, 3, 2, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(24, 5),
        )
        self.decoder = nn.Sequential(
            nn.Linear(5, 24),
            nn.ReLU(),
            nn.Unflatten(1, (6, 2, 2)),
            nn.ConvTranspose2d(6, 4, 4, 2, 1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.ConvTranspose2d(4, 1, 3, 2, 1, output_padding=1, groups=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.decoder(self.encoder(x))
        return made


def forward_of(function: Callable[[Tensor], Tensor], *parts: nn.Module) -> Any:
    """Return a module that runs a function, which may use these parts."""

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList(parts)

        def forward(self, x: Tensor) -> Tensor:
            return function(x)

    return Own().eval()


def images(n: int, channels: int = 3, size: int = 8, seed: int = 0) -> Tensor:
    return torch.randn(n, channels, size, size, generator=torch.Generator().manual_seed(seed))
