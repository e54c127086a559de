"""A step of training with Tessera's attention beside PyTorch's: a layer of BERT-base and a block of
Llama-3-8B by their published sizes, with random weights, on the CPU.

python3 examples/python/torch/training_step.py [--batch 1] [--sequence 128] [--dtype bfloat16]

Both steps compute the loss and all gradients. These are compared with the same step in fp64, and
then both are timed in pairs. All else than attention is PyTorch's in both.
"""
import argparse
import copy
import time

import bert
import llama_block
import torch
import torch.nn.functional as functional

import tessera.torch

PYTORCH = functional.scaled_dot_product_attention


def step(model, x, goal, attention):
    """The loss and the gradients of a step whose attention is that function."""
    model.zero_grad(set_to_none=True)
    functional.scaled_dot_product_attention = attention
    try:
        loss = (model(x) - goal).float().square().mean()
        loss.backward()
    finally:
        functional.scaled_dot_product_attention = PYTORCH
    return loss.item(), [parameter.grad for parameter in model.parameters()]


def worst(gradients, expected):
    """The greatest error of any parameter's gradient, as a part of the greatest element of all:
    the bias of keys has a gradient of 0."""
    most = max(want.abs().max() for want in expected)
    return float(max((got.double() - want).abs().max()
                     for got, want in zip(gradients, expected)) / most)


def show(title, model, width, given):
    dtype = getattr(torch, given.dtype)
    x, goal = (torch.randn(given.batch, given.sequence, width) for _ in range(2))
    wide = copy.deepcopy(model).double()
    right_loss, right = step(wide, x.double(), goal.double(), PYTORCH)
    model, x, goal = model.to(dtype), x.to(dtype), goal.to(dtype)
    ours = step(model, x, goal, tessera.torch.scaled_dot_product_attention)
    ours = ours[0], [gradient.clone() for gradient in ours[1]]
    theirs = step(model, x, goal, PYTORCH)
    errors = [worst(gradients, right) for _, gradients in (ours, theirs)]
    print(f"{title}, {given.batch} x {given.sequence} words, {given.dtype}, "
          f"{torch.get_num_threads()} threads")
    print(f"  loss: Tessera {ours[0]:.6f}, PyTorch {theirs[0]:.6f}, in fp64 {right_loss:.6f}")
    print(f"  error of the gradients against fp64: Tessera {errors[0]:.2e}, "
          f"PyTorch {errors[1]:.2e}")
    if errors[0] > 3 * errors[1] + 8 * torch.finfo(dtype).eps:
        raise SystemExit(f"the error is {errors[0]:.2e}, more than 3 times PyTorch's and 8 "
                         "roundings")
    calls = [lambda how=how: step(model, x, goal, how)
             for how in (tessera.torch.scaled_dot_product_attention, PYTORCH)]
    found = tessera.torch.compare(*calls, rounds=given.rounds,
                                  clock=time.process_time if given.busy else time.perf_counter)
    print(f"  a step: Tessera {found['ours'] * 1e3:.2f} ms, "
          f"PyTorch {found['theirs'] * 1e3:.2f} ms: {found['speedup']:.2f} times as fast "
          f"(median of {found['rounds']} pairs, spread {found['spread']:.0%})")


def shrink():
    """Sizes for a quick try."""
    bert.WIDTH, bert.HEADS, bert.INNER = 96, 4, 192
    llama_block.WIDTH, llama_block.HEADS, llama_block.KEY_HEADS = 128, 4, 2
    llama_block.HEAD, llama_block.INNER = 32, 256


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--sequence", type=int, default=128)
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--busy", action="store_true",
                        help="count the processor's time, with --threads 1 on a busy machine")
    parser.add_argument("--small", action="store_true", help="small layers of both")
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    torch.manual_seed(1)
    if given.small:
        shrink()
    show("a layer of BERT-base", bert.Layer(), bert.WIDTH, given)
    show("a block of Llama-3-8B", llama_block.Block(), llama_block.WIDTH, given)


if __name__ == "__main__":
    main()
