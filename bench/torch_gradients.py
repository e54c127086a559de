#!/usr/bin/env python3
"""The gradients of attention beside PyTorch's on a file of problems, in pairs and in random order.

bench/torch_gradients.py bench/shapes/gpt2.txt [--dtype bf16] [--threads 1 --busy] [--json FILE]
bench/torch_gradients.py lines.txt --device cuda --dtype bf16 --backend cudnn

Each line of attention becomes tensors. Both functions run forward once; then each round takes a
reading of both backward passes: torch.autograd.grad() of q, k and v for one gradient of the
output. Their results are compared with fp64 first; where the scores in fp64 would be too large for
that, ours is compared with PyTorch's.

--graph replays captured graphs, which leaves the kernels alone. --parts prints what a call of ours
takes of the host: the whole call, PyTorch's engine around a function that computes nothing, and the
parts of our function: room for the gradients, the launch and all else.
"""
import argparse
import contextlib
import json
import math
import statistics
import sys
import time

import torch
import torch.nn.functional as functional
from torch.nn.attention import sdpa_kernel

import tessera
import tessera.torch
from tessera.torch import _attention_backward, _run
import torch_attention
from torch_peers import DTYPES, read_problems

MOST_SCORES = 1 << 28  # of the answer in fp64
FLASH4 = "flash4"


def tensors_of(problem, device):
    """q, k, v as networks have them, heads behind tokens in memory, and the output's gradient."""
    number = {name: int(problem.get(name)) for name in ("batch", "heads", "seqlen_q", "seqlen_k",
                                                        "hdim")}
    kv = int(problem.get("heads_kv")) if problem.get("heads_kv") != "packed" else number["heads"]
    hdim_v = int(problem.get("hdim_v")) if problem.get("hdim_v") != "packed" else number["hdim"]
    dtype = DTYPES[problem.get("in")]

    def draw(tokens, heads, hdim):
        x = torch.randn(number["batch"], tokens, heads, hdim, device=device)
        return x.to(dtype).transpose(1, 2)

    q, k, v = (draw(number["seqlen_q"], number["heads"], number["hdim"]),
               draw(number["seqlen_k"], kv, number["hdim"]), draw(number["seqlen_k"], kv, hdim_v))
    return {"q": q, "k": k, "v": v}, draw(number["seqlen_q"], number["heads"], hdim_v)


def gradients_of(function, made, dout, how, dtype=None):
    """A function that computes them, after a forward pass."""
    leaves = [x.detach().to(dtype or x.dtype).requires_grad_() for x in made.values()]
    mask = how.get("attn_mask")
    if dtype is not None and mask is not None and mask.dtype != torch.bool:
        how = how | {"attn_mask": mask.to(dtype)}
    out = function(*leaves, **how)
    return lambda: torch.autograd.grad(out, leaves, dout.to(out.dtype), retain_graph=True)


def flash4(q, k, v, scale, is_causal=False, enable_gqa=False):
    """FlashAttention-4's function, which wants heads behind tokens."""
    from flash_attn.cute import flash_attn_func  # pylint: disable=import-outside-toplevel
    del enable_gqa  # which it finds in the shapes
    out = flash_attn_func(*(x.transpose(1, 2) for x in (q, k, v)), softmax_scale=scale,
                          causal=is_causal)
    return (out[0] if isinstance(out, tuple) else out).transpose(1, 2)


def scores_of(problem):
    return math.prod(int(problem.get(name)) for name in ("batch", "heads", "seqlen_q", "seqlen_k"))


def flops_of(problem):
    """Operations of the backward pass: five products where the forward pass has two."""
    return 2.5 * problem.flops


def errors_of(calls, exact):
    """The worst error of each call; without the exact answer, ours beside PyTorch's."""
    found = [call() for call in calls]
    wanted = exact() if exact else found[1]
    return [max(tessera.torch.worst_error(x, y) for x, y in zip(got, wanted)) for got in found]


# ---- What the kernels and the host take ---------------------------------------------------------

def in_graph(call, stream):
    """A function that replays the call, which has run on the stream before."""
    with torch.cuda.stream(stream):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        graph.results = call()
    return graph.replay


class Nothing(torch.autograd.Function):
    """What computes no gradients."""

    @staticmethod
    def forward(ctx, q, k, v):
        ctx.found = [torch.empty_like(x) for x in (q, k, v)]
        return torch.empty(*q.shape[:-1], v.shape[-1], dtype=q.dtype, device=q.device)

    @staticmethod
    def backward(ctx, _):
        return tuple(ctx.found)


def host_us(call, wait, calls=50, rounds=21):
    """The median of what a call takes until it returns, in us; the device has nothing to do when
    readings begin."""
    readings = []
    for _ in range(rounds):
        wait()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        readings.append((time.perf_counter() - begin) / calls)
    return statistics.median(readings) * 1e6


class Clock:
    """Counts the time that functions of modules take inside of calls."""

    def __init__(self, *places):
        self.places = [(module, name, getattr(module, name)) for module, name in places]
        self.seconds = {name: 0.0 for _, name, _ in self.places}

    def __enter__(self):
        for module, name, function in self.places:
            setattr(module, name, self.counting(name, function))
        return self

    def __exit__(self, *_):
        for module, name, function in self.places:
            setattr(module, name, function)

    def counting(self, name, function):
        def counted(*args):
            begin = time.perf_counter()
            result = function(*args)
            self.seconds[name] += time.perf_counter() - begin
            return result
        return counted


def host_parts(call, made, dout, device):
    """What a call of ours takes of the host, in us, by its parts."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    nothing = gradients_of(lambda *x: Nothing.apply(*x), made, dout, {})
    for warm in (call, nothing):
        host_us(warm, wait, rounds=3)
    parts = {"call": host_us(call, wait), "engine": host_us(nothing, wait)}
    calls = 300
    with Clock((_attention_backward, "_gradients_at_once"), (_attention_backward, "_gradient_of"),
               (_run, "launch_on")) as clock:
        for i in range(calls):
            if i % 20 == 0:
                wait()
            call()
    seconds = {name: clock.seconds[name] / calls * 1e6 for name in clock.seconds}
    parts["room"], parts["launch"] = seconds["_gradient_of"], seconds["launch_on"]
    parts["rest"] = seconds["_gradients_at_once"] - parts["room"] - parts["launch"]
    return parts


def measure(problem, given):
    reason = torch_attention.refusal(problem)
    if reason:
        raise ValueError(reason)
    device = torch.device(given.device)
    made, dout = tensors_of(problem, device)
    how = torch_attention.ask(problem, made, given.backend)
    exact = None
    if scores_of(problem) <= MOST_SCORES:
        exact = gradients_of(functional.scaled_dot_product_attention, made, dout, how,
                             torch.float64)
    stream = torch.cuda.Stream() if given.graph else None
    theirs, context = functional.scaled_dot_product_attention, contextlib.nullcontext()
    if given.backend == FLASH4:
        theirs = flash4
    else:
        context = sdpa_kernel([torch_attention.NAMES[given.backend]])
    with context, torch.cuda.stream(stream):
        calls = [gradients_of(function, made, dout, how)
                 for function in (tessera.torch.scaled_dot_product_attention, theirs)]
        error, peer_error = errors_of(calls, exact)
        parts = host_parts(calls[0], made, dout, device) if given.parts else {}
        if given.graph:
            calls = [in_graph(call, stream) for call in calls]
        row = tessera.torch.compare(*calls, rounds=given.rounds, device=given.device,
                                    clock=time.process_time if given.busy else time.perf_counter)
    return {"problem": problem.line, "error": error, "peer_error": peer_error, "parts": parts,
            "is_exact": exact is not None, "gflops": flops_of(problem) / row["ours"] / 1e9, **row}


def report(problem, row):
    """Prints the row, and returns whether the result is right."""
    unit = torch.finfo(DTYPES[problem.get("in")]).eps
    is_right = row["error"] <= 3 * row["peer_error"] + 8 * unit  # not where it is NaN
    print(f"{row['ours'] * 1e6:10.1f} {row['theirs'] * 1e6:10.1f} {row['gflops'] / 1e3:8.3f} "
          f"{row['speedup']:6.2f} {row['spread']:4.0%}  {problem}"
          f"{'' if is_right else '  WRONG ' + format(row['error'], '.1e')}", flush=True)
    if row["parts"]:
        print("    of the host, in us: " + ", ".join(f"{name} {us:.1f}"
                                                     for name, us in row["parts"].items()))
    return is_right


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("shapes", help="a file of problems, one a line")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--backend", default="flash", choices=(*torch_attention.NAMES, FLASH4),
                        help="of PyTorch's function, or FlashAttention-4's package flash-attn-4")
    parser.add_argument("--dtype", default="", help="of lines that name none: fp32, bf16, fp16")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--busy", action="store_true",
                        help="count the processor's time, with --threads 1 on a busy machine")
    parser.add_argument("--graph", action="store_true", help="replay captured graphs, on a GPU")
    parser.add_argument("--parts", action="store_true", help="print what the host does in a call")
    parser.add_argument("--json", default="", help="write the rows into this file")
    given = parser.parse_args()
    given.op, given.direction, given.layout = "fmha", "", ""
    if given.threads:
        torch.set_num_threads(given.threads)
    torch.manual_seed(1)
    print(f"PyTorch {torch.__version__}, {given.device}, {torch.get_num_threads()} threads; times "
          "of the backward pass in us, our TFLOP/s, speedup and its spread over the pairs")
    rows, failed = [], 0
    for problem in read_problems(given):
        try:
            row = measure(problem, given)
        except (ValueError, RuntimeError, AssertionError, tessera.Error) as reason:
            print(f"{problem}: skipped, {reason}")
            continue
        rows.append(row)
        failed += not report(problem, row)
    if rows:
        print(f"{len(rows)} problems, geometric mean of the speedups "
              f"{statistics.geometric_mean(row['speedup'] for row in rows):.2f}")
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump({"pytorch": torch.__version__, "rows": rows}, file, indent=1)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
