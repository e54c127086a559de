"""A network of Llama's shape that generates: a prompt, then token by token with a cache of keys and
values, by PyTorch's attention over one tensor, and by Tessera's over pages. Both must choose the
same tokens.

python3 examples/python/torch/llama_generate.py [--tokens 128] [--device cuda --dtype bf16]

The default is small. Llama 3 8B: --layers 32 --width 4096 --heads 32 --kv-heads 8 --inner 14336
--vocabulary 128256.
"""
import argparse
import statistics
import time
from typing import NamedTuple

import torch
import torch.nn.functional as functional
from torch import nn

import tessera.torch

BASE = 500000.0
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def angles(first, count, head, device):
    """The angles by which pairs of elements of a head turn, at the places from `first` on."""
    places = torch.arange(first, first + count, device=device, dtype=torch.float32)
    rates = BASE ** (-torch.arange(0, head, 2, device=device, dtype=torch.float32) / head)
    return places[:, None] * rates


def turned(x, first):
    """Rotary positions of tokens before heads; the first token has the place `first`."""
    turns = angles(first, x.shape[1], x.shape[-1], x.device)[:, None]
    cosine, sine = turns.cos().to(x.dtype), turns.sin().to(x.dtype)
    left, right = x.chunk(2, -1)
    return torch.cat([left * cosine - right * sine, right * cosine + left * sine], -1)


class ByTorch:
    """Keys and values of all layers, (batch, room, heads, hdim), of which `length` tokens count."""

    def __init__(self, given, batch, room, like):
        self.keys, self.values = (like.new_zeros(given.layers, batch, room, given.kv_heads,
                                                 given.width // given.heads) for _ in range(2))
        self.first = self.length = 0

    def start(self, tokens):
        self.first, self.length = self.length, self.length + tokens

    def attend(self, layer, query, key, value):
        """A prompt begins with an empty cache; a single token sees all that the cache holds."""
        self.keys[layer, :, self.first:self.length] = turned(key, self.first)
        self.values[layer, :, self.first:self.length] = value
        q, k, v = (x.transpose(1, 2) for x in (turned(query, self.first),
                                               self.keys[layer, :, :self.length],
                                               self.values[layer, :, :self.length]))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] > 1,
                                                        enable_gqa=True)
        return mixed.transpose(1, 2)


class ByTessera:
    """Pages of 16 tokens, which texts get as they grow; one kernel for the prompt and for every
    step."""

    def __init__(self, given, batch, room, like):
        head = given.width // given.heads
        self.cache = tessera.KvCache(pages=batch * -(-room // 16), heads_kv=given.kv_heads,
                                     hdim=head, layers=given.layers, like=like.detach())
        self.texts = [self.cache.add() for _ in range(batch)]
        turns = angles(0, room, head, like.device)
        self.turn = {"cos": turns.cos(), "sin": turns.sin(), "rotary": "half"}
        self.step = None

    def start(self, tokens):
        self.step = self.cache.step(self.texts, tokens)

    def attend(self, layer, query, key, value):
        query = self.step.append(layer, key, value, q=query, **self.turn)
        return tessera.torch.attention(query, self.cache.keys[layer], self.cache.values[layer],
                                       page_table=self.step.page_table,
                                       seqlens_k=self.step.lengths, mask="bottom_right",
                                       check_pages=False)


class Block(nn.Module):
    def __init__(self, given):
        super().__init__()
        self.hdim = given.width // given.heads
        narrow = given.kv_heads * self.hdim
        self.query, self.out = (nn.Linear(given.width, given.width, bias=False) for _ in range(2))
        self.key, self.value = (nn.Linear(given.width, narrow, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(given.width, given.inner, bias=False) for _ in range(2))
        self.down = nn.Linear(given.inner, given.width, bias=False)
        self.norm_1, self.norm_2 = (nn.RMSNorm(given.width, eps=1e-5) for _ in range(2))

    def forward(self, x, layer, cache):
        normed = self.norm_1(x)
        query, key, value = (product(normed).unflatten(-1, (-1, self.hdim))
                             for product in (self.query, self.key, self.value))
        x = x + self.out(cache.attend(layer, query, key, value).flatten(-2))
        normed = self.norm_2(x)
        return x + self.down(functional.silu(self.gate(normed)) * self.up(normed))


class Llama(nn.Module):
    def __init__(self, given):
        super().__init__()
        self.words = nn.Embedding(given.vocabulary, given.width)
        self.blocks = nn.ModuleList(Block(given) for _ in range(given.layers))
        self.norm = nn.RMSNorm(given.width, eps=1e-5)
        self.logits = nn.Linear(given.width, given.vocabulary, bias=False)
        for layer in self.modules():
            if isinstance(layer, nn.Linear):  # scores and what attention adds are about 1
                nn.init.normal_(layer.weight, std=layer.in_features**-0.5)

    def forward(self, tokens, cache):
        """The logits of the word after the last one."""
        cache.start(tokens.shape[1])
        x = self.words(tokens)
        for layer, block in enumerate(self.blocks):
            x = block(x, layer, cache)
        return self.logits(self.norm(x[:, -1]))


def now(device):
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


class Text(NamedTuple):
    tokens: torch.Tensor  # (batch, tokens)
    logits: torch.Tensor  # (batch, tokens, vocabulary)
    prompt_seconds: float
    other_seconds: float


def generate(model, prompt, given, way):
    like = model.logits.weight
    cache = way(given, len(prompt), prompt.shape[1] + given.tokens, like)
    chosen, logits, start, tokens = [], [], now(like.device), prompt
    for _ in range(given.tokens):
        logits.append(model(tokens, cache))
        tokens = logits[-1].argmax(-1, keepdim=True)
        chosen.append(tokens)
        if len(chosen) == 1:
            middle = now(like.device)
    end = now(like.device)
    return Text(torch.cat(chosen, 1), torch.stack(logits, 1), middle - start, end - middle)


def check(mine, wanted, dtype):
    """The same logits up to rounding, and the same tokens. Where a narrow type rounds two words to
    near equality either may come first, and what follows is not compared."""
    eps, worst, count = torch.finfo(dtype).eps, 0.0, 0
    for row in range(len(wanted.tokens)):
        differing = (mine.tokens[row] != wanted.tokens[row]).nonzero()
        same = int(differing[0]) + 1 if len(differing) else wanted.tokens.shape[1]
        a, b = mine.logits[row, :same].double(), wanted.logits[row, :same].double()
        worst, count = max(worst, float((a - b).abs().max() / b.abs().max())), count + same
        tie = float(b[-1].amax() - b[-1][mine.tokens[row, same - 1]]) / float(b.abs().max())
        if len(differing):
            count -= 1
            print(f"sequence {row} goes on otherwise from token {same - 1}, where two words are "
                  f"{tie:.1e} apart")
        if len(differing) and (dtype == torch.float32 or tie > 8 * eps):
            raise SystemExit("Tessera's attention leads to other tokens")
    print(f"{count} of {wanted.tokens.numel()} tokens are the same, logits differ by {worst:.1e} "
          "of the largest")
    if not worst <= 30 * eps:
        raise SystemExit("Tessera's attention leads to other logits")


def options():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    for name, standard in (("layers", 4), ("width", 512), ("heads", 8), ("kv-heads", 2),
                           ("inner", 1408), ("vocabulary", 4096), ("batch", 2), ("prompt", 64),
                           ("tokens", 128), ("rounds", 5), ("threads", 0), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=standard)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--dtype", default="fp32", choices=tuple(DTYPES))
    return parser.parse_args()


def main():
    given = options()
    if given.threads:
        torch.set_num_threads(given.threads)
    torch.manual_seed(given.seed)
    dtype = DTYPES[given.dtype]
    model = Llama(given).to(given.device, dtype).eval()
    prompt = torch.randint(given.vocabulary, (given.batch, given.prompt), device=given.device)
    ways = {"PyTorch": ByTorch, "Tessera": ByTessera}
    texts = {name: [] for name in ways}
    with torch.no_grad():
        for i in range(given.rounds + 1):  # the first round builds kernels and is not counted
            for name in sorted(ways, reverse=i % 2 == 1):
                texts[name] = texts[name][i == 1:] + [generate(model, prompt, given, ways[name])]
    print(f"{given.layers} blocks of width {given.width}, {given.heads} heads over "
          f"{given.kv_heads}, {given.dtype}: {given.batch} prompts of {given.prompt} tokens")
    check(texts["Tessera"][-1], texts["PyTorch"][-1], dtype)
    for name, runs in texts.items():
        first, rest = (statistics.median(column) for column in zip(*[run[2:] for run in runs]))
        each = rest / max(given.tokens - 1, 1)
        print(f"  {name}: {first * 1e3:.2f} ms for the prompt, {each * 1e3:.3f} ms a token")


if __name__ == "__main__":
    main()
