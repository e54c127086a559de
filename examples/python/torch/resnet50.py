"""ResNet-50 v1.5 by its published layers, with random weights: PyTorch's convolutions beside
Tessera's, its outputs and one step of training.

python3 examples/python/torch/resnet50.py [--device cuda] [--batch 1] [--size 224] [--last]
"""
import argparse
import copy

import end_to_end
import torch
import torch.nn.functional as functional
from torch import nn

import tessera.torch

BLOCKS, WIDTHS = (3, 4, 6, 3), (64, 128, 256, 512)


def unit(c, k, filter=1, stride=1, activation=None):
    """A convolution and its batch norm, with an activation behind them. Neighbours in a Sequential
    are what optimize() can leave to one kernel where no gradient is asked for."""
    layers = [nn.Conv2d(c, k, filter, stride, filter // 2, bias=False), nn.BatchNorm2d(k)]
    return nn.Sequential(*layers, *([] if activation is None else [activation()]))


class Block(nn.Module):
    """1x1, 3x3 with the stride, 1x1, and a shortcut, which is a layer where sizes change."""

    def __init__(self, c, width, stride, activation):
        super().__init__()
        out = 4 * width
        self.layers = nn.Sequential(unit(c, width, activation=activation),
                                    unit(width, width, 3, stride, activation), unit(width, out))
        self.shortcut = nn.Identity() if c == out and stride == 1 else unit(c, out, 1, stride)
        self.activation = activation()

    def forward(self, x):
        return self.activation(self.layers(x) + self.shortcut(x))


class ResNet50(nn.Module):
    def __init__(self, activation=nn.ReLU):
        super().__init__()
        self.stem = unit(3, 64, 7, 2, activation)
        blocks, c = [], 64
        for stage, (count, width) in enumerate(zip(BLOCKS, WIDTHS)):
            for i in range(count):
                blocks.append(Block(c, width, 2 if stage > 0 and i == 0 else 1, activation))
                c = 4 * width
        self.blocks, self.classes = nn.Sequential(*blocks), nn.Linear(c, 1000)

    def forward(self, x):
        x = functional.max_pool2d(self.stem(x), 3, 2, 1)
        return self.classes(self.blocks(x).mean((2, 3)))


def options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--dtype", default="", choices=("float32", "bfloat16", "float16"),
                        help="default: float32 on a CPU, bfloat16 on a GPU")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--last", action="store_true", help="channels last")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--threads", type=int, default=0, help="of a CPU")
    parser.add_argument("--busy", action="store_true",
                        help="count the processor's time, with --threads 1 on a busy machine")
    parser.add_argument("--graph", action="store_true", help="cuda: replay CUDA graphs of both")
    given = parser.parse_args()
    given.dtype = given.dtype or ("float32" if given.device == "cpu" else "bfloat16")
    given.no_pack = True
    if given.threads:
        torch.set_num_threads(given.threads)
    return given


def step(model, x, upstream):
    """The gradients of all weights, and the output."""
    for parameter in model.parameters():
        parameter.grad = None
    output = model(x)
    output.backward(upstream)
    return [output.detach(), *[parameter.grad for parameter in model.parameters()]]


def check_training(model, x):
    """A step forward and backward beside the same in fp64."""
    exact = copy.deepcopy(model).double()
    ours = tessera.torch.optimize(copy.deepcopy(model), example=x)[0]
    upstream = torch.randn(x.shape[0], 1000, device=x.device).to(x.dtype)
    true = step(exact, x.double(), upstream.double())
    mine, torchs = (max(map(tessera.torch.worst_error, step(net, x, upstream), true))
                    for net in (ours, model))
    print(f"  training: error of output and gradients against fp64: Tessera {mine:.2e}, PyTorch "
          f"{torchs:.2e}")
    if mine > 3 * torchs + 4 * torch.finfo(x.dtype).eps:
        raise SystemExit(f"the error is {mine:.2e}, more than 3 times PyTorch's and 4 roundings")


def time_training(model, x, given):
    ours = tessera.torch.optimize(copy.deepcopy(model), example=x)[0]
    upstream = torch.ones(x.shape[0], 1000, device=x.device, dtype=x.dtype)
    found = tessera.torch.compare(lambda: step(ours, x, upstream), lambda: step(model, x, upstream),
                                  rounds=given.rounds, device=given.device)
    print(f"  Tessera {found['ours'] * 1e3:.3f} ms, PyTorch {found['theirs'] * 1e3:.3f} ms: "
          f"{found['speedup']:.2f} times as fast (spread {found['spread']:.0%})")


def main():
    given = options()
    torch.manual_seed(1)
    memory = torch.channels_last if given.last else torch.contiguous_format
    dtype = getattr(torch, given.dtype)
    model, smooth = (ResNet50(activation).to(given.device, dtype, memory_format=memory)
                     for activation in (nn.ReLU, nn.SiLU))
    x = torch.randn(given.batch, 3, given.size, given.size)
    x = x.to(given.device, dtype, memory_format=memory)
    end_to_end.run(f"ResNet-50, {given.batch} x {given.size} x {given.size}", model, [x], given)
    # ReLU's derivative jumps, so that one rounding may change a gradient much. SiLU's does not.
    check_training(smooth.train(), x)
    time_training(model.train().requires_grad_(True), x, given)


if __name__ == "__main__":
    main()
