#!/usr/bin/env python3
"""Errors of attention in fp8 beside fp64, ours and cuDNN's: python3 bench/attention_errors.py

For each kind of inputs and each kernel: the root of the mean square error as a share of the
answer's, of the quantised inputs and (in brackets) of the inputs before that. cuDNN's fp8 attention
needs the package nvidia-cudnn-frontend; it is left out where that is missing or refuses. Inputs are
drawn in bf16 and quantised with one factor for each tensor. `centred`: v less its mean of each head
and column, which is added to the result in fp32.
"""
import argparse

import torch

import cudnn_fp8
import tessera

F8 = torch.float8_e4m3fn
HEADS = 2


def normal(tokens, hdim):
    return [torch.randn(1, tokens, HEADS, hdim, device="cuda") for _ in range(3)]


def with_mean(tokens, hdim):
    q, k, v = normal(tokens, hdim)
    return [q, k, v + 1]


def outliers(tokens, hdim):
    return [x + 10 * torch.randn_like(x) * (torch.rand_like(x) < 1e-3)
            for x in normal(tokens, hdim)]


def sink(tokens, hdim):
    """The first key has 8 nats more than the others."""
    q, k, v = normal(tokens, hdim)
    sign = torch.randn(hdim, device="cuda").sign()
    k[:, :1] = sign * 8 * hdim**-0.5
    return [q + sign, k, v]


def growing(tokens, hdim):
    """Scores grow by 5 nats with each of 16 blocks of 128 keys, in the order of the kernels."""
    q, k, v = normal(tokens, hdim)
    sign = torch.randn(hdim, device="cuda").sign()
    blocks = torch.arange(tokens, device="cuda").flip(0) // 128
    rise = 5 * (blocks % 16) * hdim**-0.5
    return [q + sign, k + rise[None, :, None, None] * sign, v]


KINDS = {"N(0,1)": normal, "v of mean 1": with_mean, "outliers": outliers, "sink": sink,
         "growing": growing}


def quantised(x):
    factor = x.float().abs().max() / 448
    return (x.float() / factor).to(F8), factor.reshape(1)


def answer(q, k, v, is_causal):
    """In fp64, head by head: (tokens, heads, hdim)."""
    tokens = q.shape[1]
    seen = torch.ones(tokens, tokens, dtype=torch.bool, device="cuda").tril()
    out = []
    for head in range(HEADS):
        scores = q[0, :, head].double() @ k[0, :, head].double().T * q.shape[-1]**-0.5
        if is_causal:
            scores.masked_fill_(~seen, float("-inf"))
        out.append(torch.softmax(scores, -1) @ v[0, :, head].double())
    return torch.stack(out, 1)


def ours(q, k, v, factors, is_causal, kernel):
    """By the kernel of this name, or by the one that is chosen: the result and the kernel."""
    _, tokens, heads, hdim = q.shape
    line = (f"fmha heads={heads} seqlen_q={tokens} seqlen_k={tokens} hdim={hdim} dtype=fp8 "
            f"out=bf16 qscale=per_tensor mask={'top_left' if is_causal else 'none'}")
    plan = tessera.Dispatcher("sm90a").plan(line, force=kernel)
    out = torch.empty(q.shape, dtype=torch.bfloat16, device="cuda")
    plan.launch(q=q, k=k, v=v, out=out, descale_q=factors[0], descale_k=factors[1],
                descale_v=factors[2])
    torch.cuda.synchronize()
    return out[0], plan.kernel


def share(got, right):
    return float((got.double() - right).norm() / right.norm())


def measured(kind, tokens, hdim, is_causal, kernels):
    """A line for each kernel."""
    torch.manual_seed(tokens)
    given = [x.bfloat16() for x in KINDS[kind](tokens, hdim)]
    pairs = [quantised(x) for x in given]
    whole, factors = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    right = answer(*(x.double() * f for x, f in pairs), is_causal)
    before = answer(*given, is_causal)
    for kernel in kernels or [None]:
        out, name = ours(*whole, factors, is_causal, kernel)
        print(f"  {share(out, right):.2e} ({share(out, before):.2e})  {name}")
    mean = given[2].float().mean(1, keepdim=True)
    centred, factor = quantised(given[2] - mean)
    out, _ = ours(whole[0], whole[1], centred, factors[:2] + [factor], is_causal, None)
    print(f"  {'':8} ({share(out.float() + mean[0], before):.2e})  the first one, v centred")
    try:
        call, result = cudnn_fp8.prepared(*whole, factors, is_causal)
        call()
        out = result()[0]
        print(f"  {share(out, right):.2e} ({share(out, before):.2e})  cuDNN fp8, out e4m3")
    except Exception as error:  # pylint: disable=broad-except
        print(f"  cuDNN fp8: {str(error)[:200]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--tokens", type=int, nargs="+", default=[1024, 16384])
    parser.add_argument("--hdim", type=int, nargs="+", default=[128, 256])
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--kernel", nargs="+", default=[], help="names; the chosen one without it")
    given = parser.parse_args()
    for hdim in given.hdim:
        for tokens in given.tokens:
            for kind in KINDS:
                mask = "causal" if given.causal else "full"
                print(f"{kind}, {tokens} tokens, hdim {hdim}, {mask}")
                measured(kind, tokens, hdim, given.causal, given.kernel)


if __name__ == "__main__":
    main()
