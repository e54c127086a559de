"""Measures all kernels on a few convolutions, and looks what the model's choice loses."""
from __future__ import annotations

from typing import Any, List

import _paths  # noqa: F401
from tessera_ck import scripts as _scripts
from tessera_ck import targets as _targets

import judging
from grouped_conv_utils import GroupedConvDispatcherLib, GroupedConvKernelConfig, GroupedConvProblem


def efficiency(problem: GroupedConvProblem, dtype: str) -> judging.Choice:
    """What this machine chooses, and the best of all its legal kernels. Each is compared with the
    reference before it is timed; the chosen one and the best few are timed twice."""
    lib = GroupedConvDispatcherLib(GroupedConvKernelConfig(
        variant=problem.direction, dtype=dtype, ndim_spatial=problem.ndim_spatial))
    whole = lib._problem(problem)
    dispatcher = lib._live()
    decision = dispatcher.select(whole)
    seconds = {}
    for row in decision["considered"]:
        if not row["refusal"]:
            plan = dispatcher.plan(whole, force=row["kernel"])
            seconds[row["kernel"]] = plan.bench(rounds=5)["min_seconds"]
    near = sorted(seconds, key=seconds.__getitem__)[:3]
    for kernel in {decision["kernel"], *near}:
        again = dispatcher.plan(whole, force=kernel).bench(rounds=15)["min_seconds"]
        seconds[kernel] = min(seconds[kernel], again)
    best = min(seconds, key=seconds.__getitem__)
    speed = {kernel: problem.flops / taken / 1e12 for kernel, taken in seconds.items()}
    predicted = decision["predicted_seconds"]
    return judging.Choice(whole.line, decision["kernel"], speed[decision["kernel"]], best,
                          speed[best], problem.flops / predicted / 1e12 if predicted else 0.0)


def main(doc: Any, problems: List[GroupedConvProblem], wanted: float) -> int:
    return validate(problems, _scripts.parsed(doc, ("--dtype", "fp32")).dtype, wanted)


def validate(problems: List[GroupedConvProblem], dtype: str, wanted: float) -> int:
    print(_targets.resolve())
    made = []
    for problem in problems:
        made.append(efficiency(problem, dtype))
        print(f"{100 * made[-1].efficiency:6.2f}%  {made[-1].problem}\n         {made[-1].chosen}",
              flush=True)
    found = judging.summary([each.efficiency for each in made])
    is_good = found["mean"] >= wanted
    print(f"{judging.text_of(found)}: {'PASS' if is_good else 'FAIL'} (at least "
          f"{100 * wanted:.0f}%)")
    return 0 if is_good else 1
