"""PyTorch's attention as the peer of a problem: its backends, their masks, the answer in fp64."""
import contextlib

import torch
import torch.nn.functional as functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right

NAMES = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION,
         "efficient": SDPBackend.EFFICIENT_ATTENTION, "math": SDPBackend.MATH}
# Backends that know a diagonal which ends at the last key; others take it as a mask.
WITH_LOWER_RIGHT = ("flash", "efficient")
QUERIES = 2048  # at a time, of the answer in fp64


def refusal(problem):
    """Why PyTorch's function has no words for the problem; None where it has."""
    if problem.get("kind") != "forward":
        return f"PyTorch's function has no kind={problem.get('kind')}"
    if problem.get("lengths") != "equal":
        return "PyTorch's function has no sequences of several lengths"
    if float(problem.get("soft_cap")) != 0:
        return "PyTorch's function has no soft cap"
    if float(problem.get("p_drop")) != 0:
        return "PyTorch's function draws other random numbers"
    if problem.get("lse") == "1":
        return "PyTorch's function does not return the log-sum-exp"
    return None


def scale_of(problem):
    given = float(problem.get("scale"))
    return given if given != 0 else int(problem.get("hdim"))**-0.5


def seen(problem, device, first=0, count=None):
    """Which keys the queries see: (queries, keys); None for all."""
    if problem.get("mask") == "none":
        return None
    queries, keys, left, right, sink = (int(problem.get(name)) for name in (
        "seqlen_q", "seqlen_k", "window_left", "window_right", "sink"))
    count = queries - first if count is None else count
    shift = keys - queries if problem.get("mask") == "bottom_right" else 0
    diagonal = torch.arange(first, first + count, device=device)[:, None] + shift
    key = torch.arange(keys, device=device)
    mask = torch.ones(count, keys, dtype=torch.bool, device=device)
    if right >= 0:
        mask &= key <= diagonal + right
    if left >= 0:
        mask &= (key >= diagonal - left) | (key < sink)
    return None if bool(mask.all()) else mask


def added(problem, made, queries, keys, device):
    """What is added to the scores: (batch, heads, queries, keys) or None."""
    if problem.get("bias") == "none":
        return None
    if problem.get("bias") == "elementwise":
        return made["bias"]
    far = torch.arange(queries, device=device)[:, None] + keys - queries
    far = (far - torch.arange(keys, device=device)).abs()
    return -made["slopes"].reshape(-1, made["q"].shape[1], 1, 1) * far


def is_causal(problem):
    """Whether it is PyTorch's own mask, whose diagonal begins at the first query and key."""
    fields = [problem.get(name) for name in ("window_left", "window_right")]
    is_square = problem.get("seqlen_q") == problem.get("seqlen_k")
    return fields == ["-1", "0"] and (
        problem.get("mask") == "top_left" or (problem.get("mask") == "bottom_right" and is_square))


def is_lower_right(problem):
    return (problem.get("mask") == "bottom_right" and
            [problem.get(name) for name in ("window_left", "window_right")] == ["-1", "0"])


def ask(problem, made, backend):
    """PyTorch's arguments besides the tensors. A mask is made once, before the clock runs."""
    q, k = made["q"], made["k"]
    queries, keys, device = q.shape[-2], k.shape[-2], q.device
    how = {"scale": scale_of(problem), "enable_gqa": q.shape[1] != k.shape[1]}
    bias, mask = added(problem, made, queries, keys, device), seen(problem, device)
    if bias is not None:
        bias = bias if mask is None else bias.masked_fill(~mask, float("-inf"))
        return how | {"attn_mask": bias.to(q.dtype)}
    if mask is None:
        return how
    if is_causal(problem):
        return how | {"is_causal": True}
    if is_lower_right(problem) and device.type == "cuda" and backend in WITH_LOWER_RIGHT:
        return how | {"attn_mask": causal_lower_right(queries, keys)}
    return how | {"attn_mask": mask}


def attention_peers(problem, made, wanted):
    """{backend: (a function of nothing, the context in which it runs)} of those that compute it."""
    found = {}
    for name in wanted or NAMES:
        how, context = ask(problem, made, name), lambda name=name: sdpa_kernel([NAMES[name]])

        def call(how=how):
            return functional.scaled_dot_product_attention(made["q"], made["k"], made["v"], **how)
        try:
            with context(), contextlib.redirect_stderr(None):
                call()
        except (RuntimeError, torch.cuda.OutOfMemoryError):
            continue
        found[name] = call, context
    return found


def exact(problem, made):
    """The answer in fp64, a part of the queries of a key-value head at a time."""
    q, k, v = made["q"], made["k"], made["v"]
    group, queries = q.shape[1] // k.shape[1], q.shape[2]
    out = torch.empty(*q.shape[:3], v.shape[-1], dtype=torch.float64, device=q.device)
    bias = added(problem, made, queries, k.shape[2], q.device)
    for first in range(0, queries, QUERIES):
        rows = slice(first, min(first + QUERIES, queries))
        mask = seen(problem, q.device, first, rows.stop - first)
        for b in range(q.shape[0]):
            for h in range(k.shape[1]):
                heads = slice(h * group, (h + 1) * group)
                scores = q[b, heads, rows].double() @ k[b, h].double().mT * scale_of(problem)
                if bias is not None:
                    scores += bias.expand(q.shape[0], q.shape[1], -1, -1)[b, heads, rows].double()
                if mask is not None:
                    scores.masked_fill_(~mask, float("-inf"))
                out[b, heads, rows] = scores.softmax(-1).nan_to_num() @ v[b, h].double()
    return out
