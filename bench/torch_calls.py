#!/usr/bin/env python3
"""What an eager call of tessera.torch costs on the host, beside PyTorch's own, on small tensors.

    python3 bench/torch_calls.py [--device cuda] [--rounds 9] [--calls 2000]

Prints microseconds of each call: the median and the spread (a quarter to three quarters) of rounds
in turns, on one thread: the thread's own time on a CPU, the clock's on a GPU, which is waited for
between the rounds, not in them; its queue holds a round of 500 calls at most.
"""
import argparse
import ctypes
import os
import statistics
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.nn.functional as functional

import tessera.torch as tt
from tessera import _abi, _warm
from tessera.torch import _warm as seen

ops = torch.ops.tessera


def launch_alone(x, weight):
    """The plan's own launch through ctypes, whose operands are ready."""
    seen.forget()
    tt.linear(x, weight)
    tt.linear(x, weight)
    if not seen._table:
        return None
    bound = next(iter(seen._table.values()))[3]
    out = torch.empty(x.shape[0], weight.shape[0], dtype=x.dtype, device=x.device)
    addresses = [t.data_ptr() for t in (x, weight)] + [0, 0, 0, out.data_ptr()]
    operands = bound.addresses(*bound.pick(addresses))
    options = None
    if bound.stream_of is not None:
        options = _abi.LaunchOptions(stream=torch._C._cuda_getCurrentRawStream(bound.stream_of))
        if bound.workspace_bytes:
            return None
        options = ctypes.byref(options)
    launch, keep = _abi.function("tsr_launch"), (x, weight, out)
    return lambda: (launch(bound.address, operands, bound.count, options), keep)[0]


def products(new, device):
    x, weight, bias = new(1, 64), new(64, 64), new(64)
    frozen = tt.Linear(64, 64, dtype=x.dtype, device=device).requires_grad_(False)
    theirs = torch.nn.Linear(64, 64, dtype=x.dtype, device=device).requires_grad_(False)
    asks = weight.clone().requires_grad_()
    rows = [("linear", lambda: tt.linear(x, weight, bias),
             lambda: functional.linear(x, weight, bias)),
            ("torch.ops.tessera.linear", lambda: ops.linear(x, weight, bias),
             lambda: torch.ops.aten.linear(x, weight, bias)),
            ("torch.ops.tessera.linear.default", lambda: ops.linear.default(x, weight, bias),
             lambda: torch.ops.aten.linear.default(x, weight, bias)),
            ("linear, a gradient", lambda: tt.linear(x, asks, bias),
             lambda: functional.linear(x, asks, bias)),
            ("matmul", lambda: tt.matmul(x, weight), lambda: torch.matmul(x, weight)),
            ("Linear", lambda: frozen(x), lambda: theirs(x))]
    if device == "cpu":
        packed = tt.Linear(64, 64, dtype=x.dtype).requires_grad_(False)
        packed.pack()
        rows.append(("Linear, packed", lambda: packed(x), lambda: theirs(x)))
    return rows


def heads(new):
    q = new(1, 1, 1, 64)
    asks = q.clone().requires_grad_()
    how = (None,) * 7 + ("bhsd", None, None, 0, None, 0.0, None, None, 0, 0.0, False, False)
    theirs = functional.scaled_dot_product_attention
    return [("attention", lambda: tt.attention(q, q, q, layout="bhsd"), lambda: theirs(q, q, q)),
            ("scaled_dot_product_attention",
             lambda: tt.scaled_dot_product_attention(q, q, q), lambda: theirs(q, q, q)),
            ("torch.ops.tessera.attention", lambda: ops.attention(q, q, q, *how),
             lambda: torch.ops.aten.scaled_dot_product_attention(q, q, q)),
            ("scaled_dot_product_attention, a gradient",
             lambda: tt.scaled_dot_product_attention(asks, q, q), lambda: theirs(asks, q, q))]


def others(new):
    x, scale = new(1, 64), new(64)
    image, filters = new(1, 8, 4, 4), new(8, 8, 1, 1)
    return [("softmax", lambda: tt.softmax(x), lambda: torch.softmax(x, -1)),
            ("rms_norm", lambda: tt.rms_norm(x, scale),
             lambda: functional.rms_norm(x, (64,), scale, 1e-5)),
            ("conv2d", lambda: tt.conv2d(image, filters),
             lambda: functional.conv2d(image, filters)),
            ("conv_transpose2d", lambda: tt.conv_transpose2d(image, filters),
             lambda: functional.conv_transpose2d(image, filters))]


def rows_of(device):
    dtype = torch.float32 if device == "cpu" else torch.bfloat16

    def new(*shape):
        return torch.randn(*shape, device=device).to(dtype)
    rows = [*products(new, device), *heads(new), *others(new)]
    alone = launch_alone(new(1, 64), new(64, 64))
    return rows if alone is None else [("the plan's launch through ctypes", alone, None), *rows]


def measured(calls, rounds, count, wait, now):
    """For each function its times in microseconds, in turns."""
    times = [[] for _ in calls]
    for _ in range(rounds):
        for found, call in zip(times, calls):
            call()
            wait()
            began = now()
            for _ in range(count):
                call()
            found.append((now() - began) / count * 1e6)
            wait()
    return times


def text_of(times):
    low, middle, high = statistics.quantiles(times, n=4)
    return f"{middle:7.2f} us ({low:.2f} to {high:.2f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=2000)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    on_gpu = asked.device == "cuda"
    now = time.perf_counter if on_gpu else time.thread_time
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    rows = rows_of(asked.device)
    calls = [call for row in rows for call in row[1:] if call is not None]
    for call in calls:
        call(), call()
    count = min(asked.calls, 500) if on_gpu else asked.calls
    times = iter(measured(calls, asked.rounds, count, wait, now))
    print(f"PyTorch {torch.__version__}, {asked.device}, "
          f"{'with' if _warm.has_fast() else 'without'} the extension")
    print(f"{'call':42} {'Tessera':32} PyTorch")
    for name, _, theirs in rows:
        ours = text_of(next(times))
        print(f"{name:42} {ours:32} {text_of(next(times)) if theirs is not None else ''}")


if __name__ == "__main__":
    main()
