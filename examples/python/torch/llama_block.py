"""Blocks of Llama-3-8B by its published sizes, with random weights: PyTorch's Linear beside
Tessera's.

python3 examples/python/torch/llama_block.py [--device cuda] [--layers 4] [--sequence 128]
"""
import end_to_end
import torch
import torch.nn.functional as functional
from torch import nn

WIDTH, HEADS, KEY_HEADS, INNER, BASE = 4096, 32, 8, 14336, 500000.0
HEAD = WIDTH // HEADS


def turned(x):
    """Rotary positions: each pair of elements is turned by an angle that grows with the place."""
    places = torch.arange(x.shape[-2], device=x.device, dtype=torch.float32)
    rates = BASE ** (-torch.arange(0, HEAD, 2, device=x.device, dtype=torch.float32) / HEAD)
    angles = places[:, None] * rates
    cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x.chunk(2, -1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.key, self.value = (nn.Linear(WIDTH, KEY_HEADS * HEAD, bias=False) for _ in range(2))

    def forward(self, x):
        query, key, value = (layer(x).unflatten(-1, (-1, HEAD)).transpose(-3, -2)
                             for layer in (self.query, self.key, self.value))
        mixed = functional.scaled_dot_product_attention(turned(query), turned(key), value,
                                                        is_causal=True, enable_gqa=True)
        return self.out(mixed.transpose(-3, -2).flatten(-2))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        # A Sequential, whose layer may compute the activation: see docs/torch.md.
        self.gate = nn.Sequential(nn.Linear(WIDTH, INNER, bias=False), nn.SiLU())
        self.up = nn.Linear(WIDTH, INNER, bias=False)
        self.down = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x):
        return self.down(self.gate(x) * self.up(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.feed_forward = Attention(), FeedForward()
        self.norm_1, self.norm_2 = (nn.RMSNorm(WIDTH, eps=1e-5) for _ in range(2))

    def forward(self, x):
        x = x + self.attention(self.norm_1(x))
        return x + self.feed_forward(self.norm_2(x))


def main():
    given = end_to_end.options(__doc__, 1, 128)
    torch.manual_seed(1)
    x = torch.randn(given.batch, given.sequence, WIDTH)
    title = f"Llama-3-8B, {given.layers} of 32 blocks, {given.batch} x {given.sequence} words"
    end_to_end.run(title, nn.Sequential(*[Block() for _ in range(given.layers)]), [x], given)


if __name__ == "__main__":
    main()
