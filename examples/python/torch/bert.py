"""BERT-base by its published sizes, with random weights: PyTorch's Linear beside Tessera's.

python3 examples/python/torch/bert.py [--device cuda] [--sequence 128] [--batch 1]
"""
import end_to_end
import torch
import torch.nn.functional as functional
from torch import nn

WORDS, WIDTH, HEADS, INNER, LAYERS, LONGEST = 30522, 768, 12, 3072, 12, 512


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x):
        heads = [layer(x).unflatten(-1, (HEADS, -1)).transpose(-3, -2)
                 for layer in (self.query, self.key, self.value)]
        mixed = functional.scaled_dot_product_attention(*heads)
        return self.out(mixed.transpose(-3, -2).flatten(-2))


def feed_forward():
    """As a Sequential, whose layer may compute the activation: see docs/torch.md."""
    return nn.Sequential(nn.Linear(WIDTH, INNER), nn.GELU(), nn.Linear(INNER, WIDTH))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.feed_forward = Attention(), feed_forward()
        self.norm_1, self.norm_2 = (nn.LayerNorm(WIDTH, eps=1e-12) for _ in range(2))

    def forward(self, x):
        x = self.norm_1(x + self.attention(x))
        return self.norm_2(x + self.feed_forward(x))


class Bert(nn.Module):
    def __init__(self, layers=LAYERS):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.kinds, self.norm = nn.Embedding(2, WIDTH), nn.LayerNorm(WIDTH, eps=1e-12)
        self.layers = nn.Sequential(*[Layer() for _ in range(layers)])
        self.pooler = nn.Linear(WIDTH, WIDTH)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, words):
        places = torch.arange(words.shape[-1], device=words.device)
        x = self.norm(self.words(words) + self.places(places) + self.kinds.weight[0])
        x = self.layers(x)
        return torch.cat([x, torch.tanh(self.pooler(x[:, :1]))], 1)


def main():
    given = end_to_end.options(__doc__, LAYERS, 128)
    torch.manual_seed(1)
    words = torch.randint(WORDS, (given.batch, given.sequence))
    end_to_end.run(f"BERT-base, {given.layers} layers, {given.batch} x {given.sequence} words",
                   Bert(given.layers), [words], given)


if __name__ == "__main__":
    main()
