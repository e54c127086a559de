"""Comparing the times of two functions that do the same."""
from __future__ import annotations

import random
import statistics
import time
from typing import Any, Callable, Dict, List

import torch

from ._functions import check_tensors


def _seconds(function: Callable[[], Any], calls: int, wait: Callable[[], None],
             clock: Callable[[], float]) -> float:
    wait()
    start = clock()
    for _ in range(calls):
        function()
    wait()
    return (clock() - start) / calls


def compare(ours: Callable[[], Any], theirs: Callable[[], Any], *, rounds: int = 21,
            min_seconds: float = 0.005, device: str = "cpu", seed: int = 1,
            clock: Callable[[], float] = time.perf_counter) -> Dict[str, float]:
    """Times two functions in pairs: each round takes a reading of both, in random order, so that
    what else the machine does hits both alike.

    A reading calls the function as often as `min_seconds` needs, and waits for the device. clock:
    time.process_time counts the processor's time alone, for one thread on a busy machine. Returns
    {"ours", "theirs" (medians, in seconds of a call), "speedup" (the median over the rounds of
    theirs / ours), "spread" (that ratio's interquartile range over its median), "rounds"}.
    """
    wait = torch.cuda.synchronize if torch.device(device).type == "cuda" else lambda: None
    calls = []
    for function in (ours, theirs):
        for _ in range(2):
            function()
        once = _seconds(function, 1, wait, clock)
        calls.append(max(1, min(10000, round(min_seconds / max(once, 1e-7)))))
    order = random.Random(seed)
    readings: List[List[float]] = [[], []]
    for _ in range(rounds):
        for which in order.sample((0, 1), 2):
            readings[which].append(_seconds((ours, theirs)[which], calls[which], wait, clock))
    ratios = sorted(second / first for first, second in zip(*readings))
    middle = statistics.median(ratios)
    quarters = statistics.quantiles(ratios, n=4) if rounds > 1 else [middle] * 3
    return {"ours": statistics.median(readings[0]), "theirs": statistics.median(readings[1]),
            "speedup": middle, "spread": (quarters[2] - quarters[0]) / middle, "rounds": rounds}


def worst_error(result: torch.Tensor, reference: torch.Tensor) -> float:
    """The greatest difference, as a part of the reference's greatest element."""
    check_tensors("worst_error", ("result", "reference"), (result, reference), 2)
    wide = reference.double()
    return float((result.double() - wide).abs().max() / wide.abs().max())
