#!/usr/bin/env python3
"""Published nets end to end: optimize(model) beside PyTorch, forward and a step of training.

    python3 bench/nets.py [--net regnet_y_8gf unet3d] [--batch 1 16] [--mode forward step]
                          [--part 1/4] [--json FILE] [--profile]
    python3 bench/nets.py --read FILE...
    python3 bench/nets.py --list [--net ...] [--batch ...] > problems.txt

bf16, channels last, random weights, batch norms in fp32 with the statistics of the input. PyTorch
runs cuDNN's whole search (cudnn.benchmark with benchmark_limit=0). A forward pass has no gradients;
it is compared with the model as it is, and with the model whose batch norms PyTorch has folded. A
step is forward, backward and SGD with momentum. Each is a CUDA graph; both are read in pairs, in
random order. Before, the results of both are compared with fp32; a wrong one is marked, and an
error at the end. A ratio is PyTorch's time by ours; above 1, Tessera is faster.

A case takes 5 to 20 s, and of unet3d a minute and more: most of it is cuDNN's search.

--list prints, as a shape file, the convolutions that Tessera is asked for; it needs no GPU.
--profile prints the kernels that take most of the time of each.
"""
import argparse
import copy
import gc
import json
import math
import pathlib
import sys
import time
from unittest import mock

import torch
import torch.nn.functional as functional
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

import net_modules
import tessera.torch
from tessera.torch import _conv_run
from torch_peers import graph_of

# Images of a batch: one, and what an optimizer would take and a card holds.
BATCHES = {"sd_vae_decoder": (1, 4), "unet3d": (1, 2)}
NORMS = (nn.BatchNorm2d, nn.BatchNorm3d)
EPSILON = torch.finfo(torch.bfloat16).eps


# ---- Models -------------------------------------------------------------------------------------

def input_of(name, batch):
    return tessera.torch.channels_last(torch.randn(batch, *net_modules.NETS[name][1]))


def with_weights(model):
    """Random weights that keep the size of what passes through them."""
    for module in model.modules():
        if isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)):
            nn.init.kaiming_normal_(module.weight)
    return tessera.torch.channels_last(model)


def with_statistics(model, x):
    """Batch norms with the mean and the variance of a batch."""
    norms = [module for module in model.modules() if isinstance(module, NORMS)]
    for norm in norms:
        norm.momentum = 1.0
    with torch.no_grad():
        model.train()(x)
    for norm in norms:
        norm.momentum = 0.1
    return model


def narrow(model):
    """A copy in bf16, with batch norms in fp32."""
    model = copy.deepcopy(model).to(torch.bfloat16)
    for module in model.modules():
        if isinstance(module, NORMS):
            module.float()
    return tessera.torch.channels_last(model)


def folded(model):
    """A copy in which PyTorch's own function has folded the batch norms."""
    model = copy.deepcopy(model)
    for module in list(model.modules()):
        if not isinstance(module, nn.Sequential):
            continue
        for i, (layer, norm) in enumerate(zip(module, list(module)[1:])):
            if isinstance(layer, (nn.Conv2d, nn.Conv3d)) and isinstance(norm, NORMS):
                kind = layer.weight.dtype
                module[i] = fuse_conv_bn_eval(layer.float(), norm.float()).to(kind)
                module[i + 1] = nn.Identity()
    return tessera.torch.channels_last(model).requires_grad_(False)


# ---- What is computed ---------------------------------------------------------------------------

def tensors_of(result):
    return result if isinstance(result, tuple) else (result,)


class Step:
    """A step of training with fixed targets."""

    def __init__(self, model, x, targets):
        self.model, self.x, self.targets = model.train(), x, targets
        self.optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)

    def gradients(self):
        self.optimizer.zero_grad(set_to_none=True)
        results = tensors_of(self.model(self.x))
        loss = sum(functional.mse_loss(y.float(), target)
                   for y, target in zip(results, self.targets))
        loss.backward()

    def __call__(self):
        self.gradients()
        self.optimizer.step()


def forward_of(model, x):
    def call():
        with torch.no_grad():
            return model(x)
    return call


# ---- Comparison ---------------------------------------------------------------------------------

def distance(tensors, wanted):
    """The root of the sum of squares of all differences, as a part of that of all values."""
    gap = sum(float((a.float() - b.float()).square().sum()) for a, b in zip(tensors, wanted))
    return math.sqrt(gap / sum(float(b.float().square().sum()) for b in wanted))


def checked(ours, theirs):
    """Both have errors of roundings, which differ; a wrong layer has an error of about 1."""
    return {"error": ours, "peer_error": theirs,
            "wrong": not ours <= 1.5 * theirs + 2 * EPSILON}


def unsearched():
    """For the results in fp32, which are computed once: a search for 3-D layers takes minutes."""
    return torch.backends.cudnn.flags(enabled=True, benchmark=False, allow_tf32=False)


def measured(ours, theirs, options):
    if options.device == "cuda":
        ours, theirs = graph_of(ours, 1), graph_of(theirs, 1)
    return tessera.torch.compare(ours, theirs, rounds=options.rounds, min_seconds=options.seconds,
                                 device=options.device, seed=options.seed)


def profiled(title, function):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        function()
        torch.cuda.synchronize()
    events = sorted(profile.key_averages(), key=lambda event: -event.self_device_time_total)
    total = sum(event.self_device_time_total for event in events)
    print(f"  {title}: {total:.0f} us of kernels")
    for event in events[:12]:
        print(f"  {event.self_device_time_total:9.0f} us {event.count:4d}  {event.key[:110]}")


def forward_row(exact, narrow_model, x, options):
    wide = x.float()
    with torch.no_grad(), unsearched():
        parts = [tensors_of(exact.eval()(image)) for image in wide.split(1)]
    wanted = [torch.cat(tensors) for tensors in zip(*parts)]
    theirs = copy.deepcopy(narrow_model).eval().requires_grad_(False)
    ours, report = tessera.torch.optimize(copy.deepcopy(theirs), x, check=False)
    calls = [forward_of(model, x) for model in (ours, theirs, folded(theirs))]
    errors = [distance(tensors_of(call()), wanted) for call in calls]
    row = {"layers": len(report), "left": [f"{layer.name}: {layer.note}" for layer in report
                                          if not layer.problem],
           "folded": sum(layer.norm for layer in report), **checked(*errors[:2])}
    if options.profile:
        for title, call in zip(("Tessera", "PyTorch"), calls):
            profiled(title, call)
    row.update(measured(*calls[:2], options))
    row["speedup_folded"] = measured(calls[0], calls[2], options)["speedup"]
    return row


def gradients_of(model, x, targets):
    Step(model, x, targets).gradients()
    found = [parameter.grad for parameter in model.parameters()]
    model.zero_grad(set_to_none=True)
    return found


def step_row(exact, narrow_model, x, options):
    with torch.no_grad():
        results = tensors_of(narrow_model.train()(x))
    targets = [torch.randn(y.shape, device=y.device) for y in results]
    del results
    theirs = copy.deepcopy(narrow_model)
    ours, report = tessera.torch.optimize(copy.deepcopy(theirs), x, check=False)
    found = [gradients_of(model, x, targets) for model in (ours, theirs)]
    exact.to(x.device)
    with unsearched():
        wanted = gradients_of(exact, x.float(), targets)
    errors = [distance(gradients, wanted) for gradients in found]
    del wanted, found
    exact.cpu()
    row = {"layers": len(report), "left": [f"{layer.name}: {layer.note}" for layer in report
                                          if not layer.problem],
           **checked(*errors)}
    steps = [Step(model, x, targets) for model in (ours, theirs)]
    if options.profile:
        for title, step in zip(("Tessera", "PyTorch"), steps):
            step()
            profiled(title, step)
    row.update(measured(*steps, options))
    return row


def cases(options):
    """A part's cases, which are each Nth."""
    found = [(name, batch, mode) for name in options.nets
             for batch in options.batch or BATCHES.get(name, (1, 16)) for mode in options.mode]
    number, count = map(int, options.part.split("/"))
    return found[number - 1::count]


def measure(name, batch, mode, options):
    torch.manual_seed(options.seed)
    x = input_of(name, batch).to(options.device)
    model = with_weights(net_modules.NETS[name][0]()).to(options.device)
    with unsearched():
        model = with_statistics(model, x)
    x = x.to(torch.bfloat16)
    row = {"forward": forward_row, "step": step_row}[mode](model, narrow(model), x, options)
    return {"net": name, "batch": batch, "mode": mode, **row}


def run(options):
    torch.backends.cudnn.benchmark, torch.backends.cudnn.benchmark_limit = True, 0
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    rows, start = [], time.monotonic()
    for name, batch, mode in cases(options):
        if time.monotonic() - start > options.limit:
            print(f"{name} of {batch}, {mode}: left out, because the time is over")
            continue
        try:
            rows.append(measure(name, batch, mode, options))
        except torch.OutOfMemoryError:
            print(f"{name} of {batch}, {mode}: the card has too little memory", flush=True)
            continue
        finally:
            gc.collect()
            torch.cuda.empty_cache()
        print_row(rows[-1])
        for note in rows[-1]["left"]:
            print(f"  left alone: {note}")
    name = torch.cuda.get_device_name() if options.device == "cuda" else "the CPU"
    about = {"device": name, "torch": torch.__version__,
             "cudnn": torch.backends.cudnn.version()}
    return {**about, "rows": rows}


# ---- The problems, without a GPU ----------------------------------------------------------------

class Recorder(torch.utils._python_dispatch.TorchDispatchMode):
    """Lines of the problems that operators ask for."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if func.namespace == "tessera" and name.startswith("conv"):
            self.add(name, *args)
        return func(*args, **(kwargs or {}))

    def add(self, name, first, second, third, *others):
        how = _conv_run.How(*[tuple(v) if isinstance(v, list) else v for v in others[:4]])
        first, second = first.to("meta"), second.to("meta")
        if name == "conv":
            bias = None if third is None else third.to("meta")
            activation = others[4] if len(others) > 4 else None
            line = _conv_run.forward_problem(first, second, bias, how, activation).line
        else:
            given = (None, second, first) if name == "conv_backward_data" else (first, None, second)
            direction = name.partition("_")[2]
            line = _conv_run.gradient_problem(direction, given, how, tuple(third)).line
        self.lines.append(line)


def problems_of(name, batch, mode):
    """The convolutions that optimize(model) asks for. No memory is needed."""
    fuse = tessera.torch._fuse
    with torch.device("meta"), mock.patch.object(fuse, "_is_watched", lambda x: False):
        model, x = narrow(net_modules.NETS[name][0]()), input_of(name, batch).to(torch.bfloat16)
        recorder = Recorder()
        if mode == "forward":
            model.eval().requires_grad_(False)
        for module in model.modules():
            module.__class__ = fuse.CLASSES.get(type(module), type(module))
        fuse.fuse(model, True, True)
        with recorder, torch.set_grad_enabled(mode == "step"):
            result = sum(y.float().sum() for y in tensors_of(model(x)))
            if mode == "step":
                result.backward()
    return recorder.lines


def print_problems(options):
    found = {}
    for case in cases(options):
        for line in problems_of(*case):
            found.setdefault(line, case[0])
    print(f"# {len(found)} convolutions of nets")
    for line, name in found.items():
        print(f"{line}  # {name}")


# ---- Tables -------------------------------------------------------------------------------------

def print_row(row):
    beside = f"{row['speedup_folded']:.2f}x" if "speedup_folded" in row else "-"
    print(f"| {row['net']} | {row['mode']} | {row['batch']} | {row['ours'] * 1e3:.3f} ms | "
          f"{row['theirs'] * 1e3:.3f} ms | {row['speedup']:.3f}x | {row['spread']:.1%} | "
          f"{beside} | {row['layers'] - len(row['left'])} of {row['layers']} | "
          f"{row['error']:.1e} | "
          f"{row['peer_error']:.1e} |{' WRONG' * row['wrong']}", flush=True)


def print_table(rows):
    print("| net | mode | n | Tessera | PyTorch | ratio | spread | ratio to folded norms | "
          "layers taken | error | PyTorch's |")
    print("| --- " * 11 + "|")
    for row in rows:
        print_row(row)
    for mode in ("forward", "step"):
        ratios = [row["speedup"] for row in rows if row["mode"] == mode]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            print(f"\n{mode}: geometric mean {mean:.3f}x, least {min(ratios):.3f}x, "
                  f"{sum(ratio < 1 for ratio in ratios)} of {len(ratios)} below 1.")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--net", dest="nets", nargs="+", default=list(net_modules.NETS),
                        choices=list(net_modules.NETS))
    parser.add_argument("--batch", type=int, nargs="+", help="left out: each net's own two")
    parser.add_argument("--mode", nargs="+", default=["forward", "step"],
                        choices=["forward", "step"])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"],
                        help="on a CPU there are no graphs")
    parser.add_argument("--limit", type=float, default=1e9,
                        help="seconds after which no case is begun; those left out are named")
    parser.add_argument("--part", default="1/1", help="1/4 runs the first of four parts")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.02, help="of a reading")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--list", action="store_true", help="print the problems, measure nothing")
    parser.add_argument("--read", type=pathlib.Path, nargs="+", help="files of --json")
    parser.add_argument("--json", type=pathlib.Path, help="where the results go")
    return parser.parse_args()


def main():
    options = arguments()
    if options.list:
        return print_problems(options)
    if options.read:
        parts = [json.loads(path.read_text(encoding="ascii")) for path in options.read]
        return print_table([row for part in parts for row in part["rows"]])
    found = run(options)
    print(f"\n{found['device']}, PyTorch {found['torch']}, cuDNN {found['cudnn']}\n")
    if options.json:
        options.json.write_text(json.dumps(found), encoding="ascii")
    print_table(found["rows"])
    if any(row["wrong"] for row in found["rows"]):
        sys.exit("nets: a result is wrong")
    return None


if __name__ == "__main__":
    main()
