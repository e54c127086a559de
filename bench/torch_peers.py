#!/usr/bin/env python3
"""Tessera beside PyTorch on a file of problems, in pairs and in random order, in one process.

bench/torch_peers.py bench/shapes/bert_base.txt [--device cuda] [--dtype bf16] [--json FILE]
bench/torch_peers.py bench/shapes/resnet50.txt --direction backward_weight --layout nchw
bench/torch_peers.py bench/shapes/gpt2.txt --op fmha [--backends flash,math]

Each problem (a line of the command line) becomes tensors. Both compute it once and are
compared with fp64; then each round takes a reading of both, in random order. PyTorch runs what one
would write: a product by torch.nn.functional.linear, torch.addmm or torch.bmm, with the epilogue as
further calls, or a convolution, for which cuDNN searches among its own; attention is compared with
each backend of scaled_dot_product_attention that computes it. On a GPU both are CUDA
graphs of --calls calls unless --eager is given, so that the time of kernels is compared and not
the host's.
"""
import argparse
import contextlib
import json
import math
import random
import statistics
import sys
import time

import torch
import torch.nn.functional as functional

import tessera
import tessera.torch
import torch_attention
from tessera.torch import _run

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
ACTIVATIONS = {"relu": torch.relu, "gelu": functional.gelu, "silu": functional.silu,
               "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
               "sigmoid": torch.sigmoid, "tanh": torch.tanh}
CONVOLUTIONS = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}


class Skip(Exception):
    """Why a problem has no peer."""


def read_problems(given):
    with open(given.shapes, encoding="utf-8") as file:
        lines = [line.partition("#")[0].strip() for line in file]
    for line in filter(None, lines):
        if given.op and line.split()[0] != given.op:
            continue
        if given.dtype and "dtype=" not in line:
            line += f" in={given.dtype}" if line.startswith("norm") else f" dtype={given.dtype}"
        if line.startswith("conv"):
            line = line.replace("direction=forward", f"direction={given.direction}")
            line += f" layout={given.layout}" if "layout=" not in line else ""
        yield tessera.Problem(line)


def scales_of(problem):
    """Weights are scaled so that results are of about 1, as in a network: far from there an
    activation's cost is another."""
    if problem.op == "gemm":
        return {"b": int(problem.get("k")) ** -0.5}
    if problem.op == "conv":
        depth = [int(problem.get(name)) for name in ("c", "z", "y", "x")]
        return {"weight": (math.prod(depth) / int(problem.get("g"))) ** -0.5}
    return {}


def tensors_of(problem, device):
    """Random operands as the problem has them."""
    made = {}
    scale = scales_of(problem)
    for operand in problem.operands:
        if operand.dtype not in DTYPES or operand.in_array:
            raise Skip(f"{operand.name} has the type {operand.dtype}")
        span = sum((n - 1) * s for n, s in zip(operand.shape, operand.strides)) + 1
        memory = torch.randn(max(span, 1), device=device) * scale.get(operand.name, 1)
        memory = memory.to(DTYPES[operand.dtype])
        made[operand.name] = memory.as_strided(operand.shape, operand.strides)
    return made


def steps_of(problem):
    """[(step, the operand that it reads or None), ...]"""
    words = problem.get("epilogue")
    steps, count = [], 0
    for word in [] if words == "none" else words.split("+"):
        if word in ("bias", "add", "multiply"):
            steps.append((word, f"d{count}"))
            count += 1
        elif word in ACTIVATIONS:
            steps.append((word, None))
        else:
            raise Skip(f"the epilogue {word} has no single call of PyTorch")
    return steps


def apply(x, steps, made):
    for word, name in steps:
        if word in ACTIVATIONS:
            x = ACTIVATIONS[word](x)
        else:
            x = x * made[name] if word == "multiply" else x + made[name]
    return x


def gemm_peer(problem, made):
    """PyTorch's calls, as a function of the operands."""
    if float(problem.get("alpha")) != 1 or float(problem.get("beta")) != 0:
        raise Skip("alpha and beta have no peer here")
    steps = steps_of(problem)
    names = [operand.name for operand in problem.operands]
    swap_a, swap_b = (letter == "c" for letter in problem.get("layout")[:2])
    has_bias = bool(steps) and steps[0][0] == "bias" and "c" not in names

    def run(tensors):
        a = tensors["a"].mT if swap_a else tensors["a"]
        b = tensors["b"].mT if swap_b else tensors["b"]
        if a.dim() == 2 and has_bias:
            bias = tensors["d0"].reshape(-1)
            return apply(torch.addmm(bias, a, b) if bias.dtype == a.dtype else a @ b + bias,
                         steps[1:], tensors)
        return apply(a @ b, steps, tensors)
    return run


def norm_peer(problem, made):
    kind, epsilon = problem.get("kind"), float(problem.get("epsilon"))
    columns = (int(problem.get("columns")),)

    def run(tensors):
        x = tensors["in"]
        if "residual" in tensors:
            x = x + tensors["residual"]
        if kind == "softmax":
            return x.softmax(-1)
        scale, shift = tensors.get("scale"), tensors.get("shift")
        if kind == "rmsnorm":
            return functional.rms_norm(x, columns, scale, epsilon)
        return functional.layer_norm(x, columns, scale, shift, epsilon)
    return run


def as_torch(operand, problem):
    """An image or filters as PyTorch has their dimensions; the memory stays."""
    def function(tensor):
        ndim, last = int(problem.get("ndim")), problem.get("layout") == "nhwgc"
        if tensor.dim() == 1:  # a bias
            return tensor
        if tensor.dim() == 5:  # one image, or filters of one group
            tensor = tensor.unsqueeze(0)
        is_filter = operand in ("weight", "grad_weight")
        if is_filter or not last:  # (g, k, ...), (n, g, c, d, h, w)
            tensor = tensor.flatten(0, 1) if is_filter else tensor.flatten(1, 2)
        else:
            tensor = tensor.flatten(-2)
        tensor = tensor.movedim(-1, 1) if last else tensor
        return tensor.flatten(2, 5 - ndim)
    return function


def conv_peer(problem, made):
    """PyTorch's convolution, forward or one of its gradients, on views of the same memory."""
    if float(problem.get("alpha")) != 1 or float(problem.get("beta")) != 0:
        raise Skip("alpha and beta have no peer here")
    dims = "dhw"[3 - int(problem.get("ndim")):]
    stride, dilation, pad = ([int(problem.get(f"{key}_{dim}")) for dim in dims]
                             for key in ("stride", "dilation", "pad"))
    if any(problem.get(f"pad_right_{dim}") not in ("packed", str(p)) for dim, p in zip(dims, pad)):
        raise Skip("PyTorch pads both sides alike")
    groups, direction = int(problem.get("g")), problem.get("direction")
    steps = steps_of(problem)
    has_bias = bool(steps) and steps[0][0] == "bias"

    def run(given):
        tensors = {name: as_torch(name, problem)(tensor) for name, tensor in given.items()}
        if direction == "forward":
            bias = tensors["d0"] if has_bias else None
            x = CONVOLUTIONS[len(dims)](tensors["in"], tensors["weight"], bias, stride, pad,
                                        dilation, groups)
            return apply(x, steps[1 if has_bias else 0:], tensors)
        mask = [direction == "backward_data", direction == "backward_weight", False]
        x, w = (tensors.get(name, tensors.get(f"grad_{name}")) for name in ("in", "weight"))
        found = torch.ops.aten.convolution_backward(tensors["grad_out"], x, w, None, stride, pad,
                                                    dilation, False, [0] * len(dims), groups, mask)
        return found[mask.index(True)]
    return run


PEERS = {"gemm": gemm_peer, "norm": norm_peer, "conv": conv_peer}


def peers_of(problem, made, given):
    """({backend: (a call, the context in which it runs)}, the answer in fp64)"""
    if problem.op != "fmha":
        peer = PEERS[problem.op](problem, made)
        exact = peer({name: tensor.double() for name, tensor in made.items()})
        return {"": (lambda: peer(made), contextlib.nullcontext)}, exact
    wanted = [word for word in given.backends.split(",") if word]
    peers = torch_attention.attention_peers(problem, made, wanted)
    if not peers:
        raise Skip("no backend of PyTorch computes it")
    return peers, torch_attention.exact(problem, made)


def result_of(problem, made, like):
    """Our output in the shape of PyTorch's."""
    name = next(operand.name for operand in problem.operands if operand.access != "read")
    if problem.op == "conv":
        return as_torch(name, problem)(made[name])
    return made[name].reshape(like.shape)


def graph_of(function, calls):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            function()
    return graph.replay


def ours_of(problem, made, device):
    """A launch of the plan, and the kernel. PyTorch's allocator gives the workspace."""
    plan = _run.plan_for(problem, device)
    names = [operand.name for operand in plan.operands]
    bound = _run.bind(plan, range(len(names)), [made[name] for name in names], device)
    addresses = [made[name].data_ptr() for name in names]
    return (lambda: _run.launch(bound, addresses, made[names[0]])), plan.info()


def measure(problem, given):
    """A row for each backend of PyTorch's."""
    reason = torch_attention.refusal(problem) if problem.op == "fmha" else None
    if reason:
        raise Skip(reason)
    device = torch.device(given.device)
    made = tensors_of(problem, device)
    peers, exact = peers_of(problem, made, given)
    ours, info = ours_of(problem, made, device)
    ours()
    error = tessera.torch.worst_error(result_of(problem, made, exact), exact)
    calls = given.calls if device.type == "cuda" and not given.eager else 1
    if calls > 1:
        ours = graph_of(ours, calls)
    for backend, (theirs, context) in peers.items():
        with context():
            peer_error = tessera.torch.worst_error(theirs(), exact)
            if calls > 1:
                theirs = graph_of(theirs, calls)
            row = tessera.torch.compare(
                ours, theirs, rounds=given.rounds, device=given.device, seed=given.seed,
                clock=time.process_time if given.busy else time.perf_counter)
        row.update(ours=row["ours"] / calls, theirs=row["theirs"] / calls)
        yield {"problem": problem.line, "kernel": info["kernel"], "source": info["source"],
               "backend": backend, "error": error, "peer_error": peer_error,
               "gflops": problem.flops / row["ours"] / 1e9, **row}


def report(problem, row):
    """Prints the row, and returns whether the result is right."""
    unit = torch.finfo(DTYPES[problem.operands[-1].dtype]).eps
    is_wrong = not row["error"] <= 3 * row["peer_error"] + 4 * unit  # also where it is NaN
    print(f"{row['ours'] * 1e6:10.1f} {row['theirs'] * 1e6:10.1f} {row['speedup']:6.2f} "
          f"{row['spread']:4.0%}  {row['backend']:{10 if row['backend'] else 0}}{problem}  "
          f"{row['kernel']}"
          f"{'  WRONG ' + format(row['error'], '.1e') if is_wrong else ''}", flush=True)
    return not is_wrong


def print_means(rows):
    """Prints the mean speedup over each backend, from the rows beside it."""
    for backend in sorted({row["backend"] for row in rows}):
        speedups = [row["speedup"] for row in rows if row["backend"] == backend]
        print(f"{len(speedups)} problems, geometric mean of the speedups "
              f"{statistics.geometric_mean(speedups):.2f}{' over ' + backend if backend else ''}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("shapes", help="a file of problems, one a line")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--dtype", default="", help="of lines that name none: fp32, bf16, fp16")
    parser.add_argument("--op", default="", help="takes the lines of this operation alone")
    parser.add_argument("--backends", default="",
                        help=f"of attention: {', '.join(torch_attention.NAMES)}; all if left out")
    parser.add_argument("--direction", default="forward", help="of convolutions",
                        choices=("forward", "backward_data", "backward_weight"))
    parser.add_argument("--layout", default="nhwgc", choices=("nhwgc", "nchw"),
                        help="of convolutions")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--calls", type=int, default=50, help="in a CUDA graph")
    parser.add_argument("--eager", action="store_true", help="on a GPU: calls, not CUDA graphs")
    parser.add_argument("--threads", type=int, default=0, help="of a CPU")
    parser.add_argument("--busy", action="store_true",
                        help="count the processor's time, with --threads 1 on a busy machine")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", default="", help="write the rows into this file")
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    torch.manual_seed(given.seed)
    torch.backends.cudnn.benchmark = True
    problems = list(read_problems(given))
    random.Random(given.seed).shuffle(problems)
    rows, failed = [], 0
    print(f"PyTorch {torch.__version__}, {given.device}, {torch.get_num_threads()} threads; "
          "times in us, speedup and its spread over the pairs")
    for problem in problems:
        try:
            with torch.no_grad():
                for row in measure(problem, given):
                    rows.append(row)
                    failed += not report(problem, row)
        except (Skip, tessera.Error) as reason:
            print(f"{problem}: skipped, {reason}")
    print_means(rows)
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump({"pytorch": torch.__version__, "device": given.device, "rows": rows}, file,
                      indent=1)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
