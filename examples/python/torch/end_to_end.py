"""What bert.py, llama_block.py and resnet50.py share: options, comparison, what is printed."""
import argparse
import copy
import time

import torch

import tessera.torch


def options(description, layers, rows):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--dtype", default="", choices=("float32", "bfloat16", "float16"),
                        help="default: float32 on a CPU, bfloat16 on a GPU")
    parser.add_argument("--layers", type=int, default=layers)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--sequence", type=int, default=rows)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--threads", type=int, default=0, help="of a CPU")
    parser.add_argument("--busy", action="store_true",
                        help="count the processor's time, with --threads 1 on a busy machine")
    parser.add_argument("--no-pack", action="store_true", help="keep weights as they are")
    parser.add_argument("--graph", action="store_true", help="cuda: replay CUDA graphs of both")
    given = parser.parse_args()
    given.dtype = given.dtype or ("float32" if given.device == "cpu" else "bfloat16")
    if given.threads:
        torch.set_num_threads(given.threads)
    return given


def graph_of(function):
    """A CUDA graph of one call."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph


def errors(model, ours, inputs):
    """How far both are from the same model in fp64."""
    expected = copy.deepcopy(model).double()(*[x.double() if x.is_floating_point() else x
                                               for x in inputs])
    return [tessera.torch.worst_error(y(*inputs), expected) for y in (ours, model)]


@torch.no_grad()
def run(title, model, inputs, given):
    """Optimises a copy of the model, checks it and times it beside the model."""
    model = model.eval().requires_grad_(False)
    model = model.to(given.device, getattr(torch, given.dtype))
    inputs = [x.to(given.device, getattr(torch, given.dtype)) if x.is_floating_point()
              else x.to(given.device) for x in inputs]
    start = time.perf_counter()
    ours, report = tessera.torch.optimize(copy.deepcopy(model), example=tuple(inputs),
                                           pack=not given.no_pack)
    print(f"{title}, {given.dtype} on {given.device}, {torch.get_num_threads()} threads")
    seen = set()
    for layer in report:
        if layer.problem not in seen:
            print(f"  {layer.name}: {layer.problem}\n      {layer.kernel}\n      {layer.note}")
        seen.add(layer.problem)
    left = sum(1 for layer in report if not layer.problem)
    print(f"  {len(report) - left} modules were replaced, {left} left alone")
    mine, torchs = errors(model, ours, inputs)
    print(f"  built in {time.perf_counter() - start:.1f} s; error against fp64: Tessera "
          f"{mine:.2e}, PyTorch {torchs:.2e}")
    # The sums are added in another order. Both must be of the same quality.
    unit = torch.finfo(getattr(torch, given.dtype)).eps
    if mine > 3 * torchs + 4 * unit:
        raise SystemExit(f"the error is {mine:.2e}, more than 3 times PyTorch's and 4 roundings")
    calls = [lambda: ours(*inputs), lambda: model(*inputs)]
    if given.graph:
        calls = [graph_of(call).replay for call in calls]
    found = tessera.torch.compare(*calls, rounds=given.rounds, device=given.device,
                                  clock=time.process_time if given.busy else time.perf_counter)
    print(f"  Tessera {found['ours'] * 1e3:.3f} ms, PyTorch {found['theirs'] * 1e3:.3f} ms: "
          f"{found['speedup']:.2f} times as fast (median of {found['rounds']} pairs, spread "
          f"{found['spread']:.0%})")
