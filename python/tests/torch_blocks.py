"""Blocks in the style of Hugging Face's transformers and of torchvision, for the tests of
optimize(): activations by a table, by a function and by a module; attributes, methods, buffers and
parameters that no forward reads; optional arguments; dictionaries as results."""
import contextlib
import math
from unittest import mock

import torch
import torch.nn.functional as functional
from torch import nn

from tessera.torch import _run, _warm

# Sums of at most 100 products of about 1, in another order, through a few layers.
NEAR = dict(rtol=1e-3, atol=2e-5)

ACT2FN = {"gelu": functional.gelu, "silu": nn.SiLU(), "relu": nn.ReLU()}


class Config:
    hidden_size, intermediate_size, heads, dropout = 32, 64, 4, 0.1

    def __init__(self, hidden_act="gelu"):
        self.hidden_act = hidden_act


class BertSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.query, self.key, self.value = (nn.Linear(config.hidden_size, config.hidden_size)
                                            for _ in range(3))
        self.dropout = nn.Dropout(config.dropout)

    def transpose_for_scores(self, x):
        return x.view(*x.shape[:-1], self.config.heads, -1).transpose(1, 2)

    def forward(self, hidden_states, attention_mask=None, output_attentions=False):
        query, key, value = (self.transpose_for_scores(layer(hidden_states))
                             for layer in (self.query, self.key, self.value))
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        if attention_mask is not None:
            scores = scores + attention_mask
        weights = self.dropout(scores.softmax(-1))
        context = (weights @ value).transpose(1, 2).flatten(-2)
        return (context, weights) if output_attentions else (context,)


class BertIntermediate(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)
        self.intermediate_act_fn = ACT2FN[config.hidden_act]

    def forward(self, hidden_states):
        hidden_states = self.dense(hidden_states)
        hidden_states = self.intermediate_act_fn(hidden_states)
        return hidden_states


class BertOutput(nn.Module):
    def __init__(self, width, config):
        super().__init__()
        self.dense = nn.Linear(width, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=1e-12)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, hidden_states, input_tensor):
        return self.LayerNorm(self.dropout(self.dense(hidden_states)) + input_tensor)


class BertLayer(nn.Module):
    chunk_size = 0

    def __init__(self, config=Config()):
        super().__init__()
        self.attention = BertSelfAttention(config)
        self.attention_output = BertOutput(config.hidden_size, config)
        self.intermediate = BertIntermediate(config)
        self.output = BertOutput(config.intermediate_size, config)
        self.register_buffer("position_ids", torch.arange(8))
        self.never_read = nn.Parameter(torch.randn(3))

    def feed_forward_chunk(self, attention_output):
        return self.output(self.intermediate(attention_output), attention_output)

    def forward(self, hidden_states, attention_mask=None, output_attentions=False):
        context, *rest = self.attention(hidden_states, attention_mask, output_attentions)
        output = self.feed_forward_chunk(self.attention_output(context, hidden_states))
        return {"last_hidden_state": output, "attentions": tuple(rest)}


class Conv1D(nn.Module):
    """GPT-2's layer: the weight is (in, out)."""

    def __init__(self, nf, nx):
        super().__init__()
        self.nf = nf
        self.weight = nn.Parameter(torch.randn(nx, nf) / 8)
        self.bias = nn.Parameter(torch.zeros(nf))

    def forward(self, x):
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(
            *x.shape[:-1], self.nf)


class GPT2MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_fc, self.c_proj = Conv1D(64, 32), Conv1D(32, 64)
        self.act, self.dropout, self.head = nn.GELU("tanh"), nn.Dropout(0.1), nn.Linear(32, 32)

    def forward(self, hidden_states):
        return self.head(self.dropout(self.c_proj(self.act(self.c_fc(hidden_states)))))


class LlamaMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(32, 64, bias=False) for _ in range(2))
        self.down_proj, self.act_fn = nn.Linear(64, 32, bias=False), ACT2FN["silu"]

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class ByFunction(nn.Module):
    """Dropout by self.training, a side effect, and an activation by its name in a module."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.calls, self.last = nn.Linear(32, 48), nn.Linear(48, 32), 0, None

    def reset(self):
        self.calls = 0

    def forward(self, x, scale: float = 1.0):
        self.calls += 1
        x = functional.gelu(self.fc1(x), approximate="tanh")
        self.last = x.detach()
        return self.fc2(functional.dropout(x, 0.5, self.training)) * scale


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, planes=8):
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(planes, planes, 3, padding=1, bias=False)
                                  for _ in range(2))
        self.bn1, self.bn2 = nn.BatchNorm2d(planes), nn.BatchNorm2d(planes)
        self.relu, self.downsample = nn.ReLU(inplace=True), None

    def forward(self, x):
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, inplanes=8, planes=8):
        super().__init__()
        wide = planes * self.expansion
        self.conv1, self.bn1 = nn.Conv2d(inplanes, planes, 1, bias=False), nn.BatchNorm2d(planes)
        self.conv2, self.bn2 = (nn.Conv2d(planes, planes, 3, 2, 1, bias=False),
                                nn.BatchNorm2d(planes))
        self.conv3, self.bn3 = nn.Conv2d(planes, wide, 1, bias=False), nn.BatchNorm2d(wide)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = nn.Sequential(nn.Conv2d(inplanes, wide, 1, 2, bias=False),
                                        nn.BatchNorm2d(wide))

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        return self.relu(self.bn3(self.conv3(out)) + self.downsample(x))


class Permute(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.dims = dims

    def forward(self, x):
        return torch.permute(x, self.dims)


class CNBlock(nn.Module):
    """ConvNeXt's block, with its stochastic depth."""

    def __init__(self, dim=8):
        super().__init__()
        self.block = nn.Sequential(
            nn.Conv2d(dim, dim, 7, padding=3, groups=dim), Permute([0, 2, 3, 1]),
            nn.LayerNorm(dim, eps=1e-6), nn.Linear(dim, 4 * dim), nn.GELU(),
            nn.Linear(4 * dim, dim), Permute([0, 3, 1, 2]))
        self.layer_scale = nn.Parameter(torch.full((dim, 1, 1), 0.5))

    def forward(self, x):
        result = self.layer_scale * self.block(x)
        if self.training:
            result = result * torch.bernoulli(torch.full((len(x), 1, 1, 1), 0.5))
        return result + x


class MLP(nn.Sequential):
    """torchvision.ops.MLP: a Sequential with a constructor of its own."""

    def __init__(self, width, hidden, dropout=0.1):
        super().__init__(nn.Linear(width, hidden), nn.GELU(), nn.Dropout(dropout),
                         nn.Linear(hidden, width), nn.Dropout(dropout))
        self.hidden = hidden

    def describe(self):
        return f"{type(self).__name__} of {self.hidden}"


class EncoderBlock(nn.Module):
    """ViT's block."""

    def __init__(self, width=32):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.self_attention = nn.MultiheadAttention(width, 4, dropout=0.1, batch_first=True)
        self.mlp = MLP(width, 2 * width)

    def forward(self, input):
        x = self.ln_1(input)
        x = input + self.self_attention(x, x, x, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


def plain():
    return nn.Sequential(nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, 16), nn.GELU())


# What makes a block, and the shape of its input.
WORDS, IMAGE = (2, 8, 32), (2, 8, 8, 8)
BLOCKS = ((BertLayer, WORDS), (GPT2MLP, WORDS), (LlamaMLP, WORDS), (ByFunction, WORDS),
          (BasicBlock, IMAGE), (Bottleneck, IMAGE), (CNBlock, IMAGE), (EncoderBlock, WORDS),
          (plain, WORDS))


@contextlib.contextmanager
def run_gemm_as(function):
    """Products run by this function meanwhile, also those of calls that were seen before."""
    with mock.patch.object(_run, "run_gemm", function), \
            mock.patch.object(_warm, "find", lambda *_: False):
        yield


@contextlib.contextmanager
def products():
    """The (activation, whether the weight is packed) of each product that runs meanwhile."""
    found, run = [], _run.run_gemm

    def look(*arguments):
        found.append((arguments[3], len(arguments) > 6 and arguments[6] is not None))
        return run(*arguments)
    with run_gemm_as(look):
        yield found
