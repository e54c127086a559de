"""Six nets by their published layers, as plain PyTorch modules with random weights.

The layers are those that data/nets/convolutions.txt lists; python/tests/test_torch_nets.py compares
them. What is random in training (dropout, stochastic depth) is left out.
"""
import math

import torch
import torch.nn.functional as functional
from torch import nn

CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
NORMS = {2: nn.BatchNorm2d, 3: nn.BatchNorm3d}


def unit(c, k, filter=1, stride=1, groups=1, activation=nn.ReLU, epsilon=1e-5, ndim=2):
    """A convolution, its batch norm and its activation."""
    layers = [CONVOLUTIONS[ndim](c, k, filter, stride, filter // 2, groups=groups, bias=False),
              NORMS[ndim](k, epsilon)]
    return nn.Sequential(*layers, *([] if activation is None else [activation()]))


def begun_small(layers):
    """A residual branch whose last batch norm makes it small, as trainings begin: otherwise a
    rounding grows from block to block, and no result can be compared."""
    nn.init.constant_(layers[-1][1].weight, 0.2)
    return layers


class Scaled(nn.Module):
    """Squeeze and excitation: channels scaled by what two layers make of their means."""

    def __init__(self, c, squeezed, activation=nn.ReLU):
        super().__init__()
        self.layers = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(c, squeezed, 1),
                                    activation(), nn.Conv2d(squeezed, c, 1), nn.Sigmoid())

    def forward(self, x):
        return x * self.layers(x)


class Classes(nn.Module):
    """The mean of each channel, and a linear layer."""

    def __init__(self, c, classes=1000):
        super().__init__()
        self.layer = nn.Linear(c, classes)

    def forward(self, x):
        return self.layer(x.mean((2, 3)))


# ---- RegNet-Y -----------------------------------------------------------------------------------

class RegNetBlock(nn.Module):
    def __init__(self, c, k, stride, width):
        super().__init__()
        self.body = begun_small(nn.Sequential(
            unit(c, k), unit(k, k, 3, stride, k // width), Scaled(k, c // 4),
            unit(k, k, activation=None)))
        self.shortcut = nn.Identity() if c == k and stride == 1 else \
            unit(c, k, stride=stride, activation=None)

    def forward(self, x):
        return functional.relu(self.shortcut(x) + self.body(x))


def regnet_y_8gf():
    """Radosavovic et al., 2020: a stem of 32, four stages of groups of 56 channels."""
    blocks, c = [], 32
    for depth, k in ((2, 224), (4, 448), (10, 896), (1, 2016)):
        for i in range(depth):
            blocks.append(RegNetBlock(c, k, 2 if i == 0 else 1, 56))
            c = k
    return nn.Sequential(unit(3, 32, 3, 2), *blocks, Classes(c))


# ---- EfficientNetV2 -----------------------------------------------------------------------------

class Inverted(nn.Module):
    """Expansion, a 3x3 layer and a projection; the first two are one layer where they are fused."""

    def __init__(self, c, k, stride, expansion, fused):
        super().__init__()
        wide, plain = c * expansion, {"activation": None, "epsilon": 1e-3}
        smooth = {"activation": nn.SiLU, "epsilon": 1e-3}
        if not fused:
            layers = [unit(c, wide, **smooth), unit(wide, wide, 3, stride, wide, **smooth),
                      Scaled(wide, c // 4, nn.SiLU), unit(wide, k, **plain)]
        elif expansion == 1:
            layers = [unit(c, k, 3, stride, **smooth)]
        else:
            layers = [unit(c, wide, 3, stride, **smooth), unit(wide, k, **plain)]
        self.layers, self.is_residual = nn.Sequential(*layers), c == k and stride == 1
        if self.is_residual:
            begun_small(self.layers)

    def forward(self, x):
        y = self.layers(x)
        return x + y if self.is_residual else y


def efficientnet_v2_s():
    """Tan and Le, 2021, table 4."""
    stages = ((True, 1, 24, 1, 2), (True, 4, 48, 2, 4), (True, 4, 64, 2, 4),
              (False, 4, 128, 2, 6), (False, 6, 160, 1, 9), (False, 6, 256, 2, 15))
    smooth = {"activation": nn.SiLU, "epsilon": 1e-3}
    layers, c = [unit(3, 24, 3, 2, **smooth)], 24
    for fused, expansion, k, stride, depth in stages:
        for i in range(depth):
            layers.append(Inverted(c, k, stride if i == 0 else 1, expansion, fused))
            c = k
    return nn.Sequential(*layers, unit(c, 1280, **smooth), Classes(1280))


# ---- YOLOv8 -------------------------------------------------------------------------------------

def yolo_unit(c, k, filter=1, stride=1):
    return unit(c, k, filter, stride, activation=nn.SiLU, epsilon=1e-3)


class Pair(nn.Module):
    """Two 3x3 layers with a shortcut."""

    def __init__(self, c):
        super().__init__()
        self.layers = begun_small(nn.Sequential(yolo_unit(c, c, 3), yolo_unit(c, c, 3)))

    def forward(self, x):
        return x + self.layers(x)


class Split(nn.Module):
    """One half of the channels goes through pairs; the last layer reads what each has made."""

    def __init__(self, c, pairs):
        super().__init__()
        self.first, half = yolo_unit(c, c), c // 2
        self.pairs = nn.ModuleList(Pair(half) for _ in range(pairs))
        self.last = yolo_unit((2 + pairs) * half, c)

    def forward(self, x):
        parts = list(self.first(x).chunk(2, 1))
        for pair in self.pairs:
            parts.append(pair(parts[-1]))
        return self.last(torch.cat(parts, 1))


class Pyramid(nn.Module):
    """Three poolings of 5x5, one after the other, read together."""

    def __init__(self, c):
        super().__init__()
        self.first, self.last = yolo_unit(c, c // 2), yolo_unit(2 * c, c)

    def forward(self, x):
        parts = [self.first(x)]
        for _ in range(3):
            parts.append(functional.max_pool2d(parts[-1], 5, 1, 2))
        return self.last(torch.cat(parts, 1))


class YoloBackbone(nn.Module):
    """The features of three sizes that the detector's head reads."""

    def __init__(self):
        super().__init__()
        self.stem = yolo_unit(3, 48, 3, 2)
        stages, c = [], 48
        for k, pairs in ((96, 2), (192, 4), (384, 4), (576, 2)):
            stages.append(nn.Sequential(yolo_unit(c, k, 3, 2), Split(k, pairs)))
            c = k
        stages[-1].append(Pyramid(c))
        self.stages = nn.ModuleList(stages)

    def forward(self, x):
        x, found = self.stem(x), []
        for stage in self.stages:
            x = stage(x)
            found.append(x)
        return tuple(found[1:])


# ---- The decoder of Stable Diffusion's autoencoder ----------------------------------------------

def group_norm(c):
    return nn.GroupNorm(32, c, 1e-6)


class ResidualBlock(nn.Module):
    def __init__(self, c, k):
        super().__init__()
        self.layers = nn.Sequential(group_norm(c), nn.SiLU(), nn.Conv2d(c, k, 3, padding=1),
                                    group_norm(k), nn.SiLU(), nn.Conv2d(k, k, 3, padding=1))
        self.shortcut = nn.Identity() if c == k else nn.Conv2d(c, k, 1)

    def forward(self, x):
        return self.shortcut(x) + self.layers(x)


class SpatialAttention(nn.Module):
    """Attention of one head among the pixels."""

    def __init__(self, c):
        super().__init__()
        self.norm, self.out = group_norm(c), nn.Linear(c, c)
        self.q, self.k, self.v = (nn.Linear(c, c) for _ in range(3))

    def forward(self, x):
        tokens = self.norm(x).flatten(2).mT
        q, k, v = (layer(tokens).unsqueeze(1) for layer in (self.q, self.k, self.v))
        y = self.out(functional.scaled_dot_product_attention(q, k, v).squeeze(1))
        return x + y.mT.reshape(x.shape)


class Enlarged(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.layer = nn.Conv2d(c, c, 3, padding=1)

    def forward(self, x):
        return self.layer(functional.interpolate(x, scale_factor=2.0, mode="nearest"))


def sd_vae_decoder():
    """Rombach et al., 2022: the decoder of the autoencoder with 4 channels and 8 x 8 pixels."""
    layers = [nn.Conv2d(4, 4, 1), nn.Conv2d(4, 512, 3, padding=1), ResidualBlock(512, 512),
              SpatialAttention(512), ResidualBlock(512, 512)]
    c = 512
    for k, grows in ((512, True), (512, True), (256, True), (128, False)):
        for _ in range(3):
            layers.append(ResidualBlock(c, k))
            c = k
        layers += [Enlarged(c)] if grows else []
    return nn.Sequential(*layers, group_norm(c), nn.SiLU(), nn.Conv2d(c, 3, 3, padding=1))


# ---- Whisper's front ----------------------------------------------------------------------------

class WhisperFront(nn.Module):
    """Radford et al., 2022, with the sizes of large-v3: the two layers before the encoder's blocks,
    and the sines of the positions."""

    def __init__(self, c=128, k=1280, length=1500):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv1d(c, k, 3, padding=1), nn.GELU(),
                                    nn.Conv1d(k, k, 3, 2, 1), nn.GELU())
        steps = torch.exp(-math.log(10000) / (k // 2 - 1) * torch.arange(k // 2))
        angles = torch.arange(length)[:, None] * steps[None]
        self.register_buffer("positions", torch.cat([angles.sin(), angles.cos()], 1))

    def forward(self, x):
        return self.layers(x).mT + self.positions


# ---- The 3-D UNet -------------------------------------------------------------------------------

class UNet3D(nn.Module):
    """Cicek et al., 2016, with padded layers, so that the result has the image's size."""

    def __init__(self):
        super().__init__()
        def pair(c, middle, k):
            return nn.Sequential(unit(c, middle, 3, ndim=3), unit(middle, k, 3, ndim=3))
        self.down = nn.ModuleList([pair(1, 32, 64), pair(64, 64, 128), pair(128, 128, 256),
                                   pair(256, 256, 512)])
        self.grow = nn.ModuleList(nn.ConvTranspose3d(c, c, 2, 2) for c in (512, 256, 128))
        self.up = nn.ModuleList([pair(768, 256, 256), pair(384, 128, 128), pair(192, 64, 64)])
        self.classes = nn.Conv3d(64, 3, 1)

    def forward(self, x):
        kept = []
        for i, layers in enumerate(self.down):
            x = layers(x if i == 0 else functional.max_pool3d(x, 2))
            kept.append(x)
        for grow, layers, other in zip(self.grow, self.up, kept[-2::-1]):
            x = layers(torch.cat([other, grow(x)], 1))
        return self.classes(x)


# What makes a net, one input of it, and the section of data/nets/convolutions.txt.
NETS = {
    "regnet_y_8gf": (regnet_y_8gf, (3, 224, 224), "regnet_y_8gf"),
    "efficientnet_v2_s": (efficientnet_v2_s, (3, 384, 384), "efficientnet_v2_s"),
    "yolov8m_backbone": (YoloBackbone, (3, 640, 640), "yolov8m"),
    "sd_vae_decoder": (sd_vae_decoder, (4, 64, 64), "sd_vae"),
    "whisper_front": (WhisperFront, (128, 3000), "whisper_large_v3"),
    "unet3d": (UNet3D, (1, 128, 128, 128), "unet3d"),
}
