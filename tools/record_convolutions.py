"""Writes the convolutions that a PyTorch model runs, as a net of data/nets/convolutions.txt.

    python3 tools/record_convolutions.py resnet50 classification learned torchvision-0.26.0 \\
        'torchvision.models.resnet50(weights=None)' 1x3x224x224

The model is made and run on the meta device, so that no weights are loaded and nothing is
computed; --device cpu is for models that ask for a tensor's value. Every size is an operand of the
model. A convolution by any module or function counts. Zeros that a model pads its operand with
before become padding of the layer.
"""
import argparse
import importlib
import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode

ENDS = {1: ("w", "x"), 2: ("hw", "yx"), 3: ("dhw", "zyx")}


class Recorder(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.layers = {}  # the layer's words: how often it was run
        self.padded = {}  # a tensor's id: the size before zeros were added, how many, and itself

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.convolution.default:
            words = self.layer(*args)
            self.layers[words] = self.layers.get(words, 0) + 1
        if func is torch.ops.aten.constant_pad_nd.default:
            self.pad(result, *args, **(kwargs or {}))
        return result

    def unpadded(self, x):
        """The size of x without zeros around it, and how many there are before and after."""
        size, pads, _ = self.padded.get(id(x), (list(x.shape[2:]), [(0, 0)] * (x.dim() - 2), x))
        return size, pads

    def pad(self, result, x, pad, value=0):
        spatial, others = pad[:2 * (x.dim() - 2)], pad[2 * (x.dim() - 2):]
        if value or any(others) or min(spatial, default=-1) < 0:
            return
        spatial = list(spatial) + [0] * (2 * (x.dim() - 2) - len(spatial))
        size, before = self.unpadded(x)
        added = list(zip(spatial[::2], spatial[1::2]))[::-1]
        pads = [(a + c, b + d) for (a, b), (c, d) in zip(added, before)]
        self.padded[id(result)] = (size, pads, result)

    def layer(self, x, weight, _, stride, padding, dilation, transposed, output_padding, groups):
        ndim = weight.dim() - 2
        stride, padding, dilation, more = (
            list(v) * ndim if len(v) == 1 else list(v)
            for v in (stride, padding, dilation, output_padding))
        filters = list(weight.shape[2:])
        if transposed:  # the gradient by x of a convolution, whose x is the result
            c, k = weight.shape[1] * groups, x.shape[1]
            pads = [(p, p - m) for p, m in zip(padding, more)]
            size = [(i - 1) * s - sum(p) + d * (f - 1) + 1
                    for i, s, p, d, f in zip(x.shape[2:], stride, pads, dilation, filters)]
        else:
            c, k = x.shape[1], weight.shape[0]
            size, before = self.unpadded(x)
            pads = [(a + p, b + p) for (a, b), p in zip(before, padding)]
        words = (["transposed"] if transposed else []) + [f"c={c}", f"k={k}"]
        words += [f"g={groups}"] if groups > 1 else []
        words += [f"ndim={ndim}"] if ndim != 2 else []
        ends, names = ENDS[ndim]
        words += [f"{e}={v}" for e, v in zip(ends, size)]
        words += [f"{e}={v}" for e, v in zip(names, filters) if v != 1]
        words += [f"stride_{e}={v}" for e, v in zip(ends, stride) if v != 1]
        words += [f"dilation_{e}={v}" for e, v, f in zip(ends, dilation, filters)
                  if v != 1 and f != 1]
        words += [f"pad_{e}={p}" for e, (p, _) in zip(ends, pads) if p]
        words += [f"pad_right_{e}={q}" for e, (p, q) in zip(ends, pads) if q != p]
        return " ".join(words)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("name", "domain", "side", "source"):
        parser.add_argument(name)
    parser.add_argument("model", help="an expression, whose first word is a module to import")
    parser.add_argument("sizes", nargs="+", help="of the operands, such as 1x3x224x224")
    parser.add_argument("--device", default="meta")
    options = parser.parse_args()
    module = options.model.split(".")[0]
    with torch.device(options.device):
        model = eval(options.model, {module: importlib.import_module(module)})  # the user's own
        operands = [torch.zeros(*map(int, size.split("x"))) for size in options.sizes]
    recorder = Recorder()
    with torch.no_grad(), torch.device(options.device), recorder:
        model.to(options.device).eval()(*operands)
    if not recorder.layers:
        sys.exit(f"record_convolutions: {options.name} ran no convolution")
    size = "x".join(options.sizes[0].split("x")[2:])
    print(f"\nnet {options.name} {options.domain} {options.side} {size} {options.source}")
    for words, count in recorder.layers.items():
        print(f"{count} {words}")


if __name__ == "__main__":
    main()
