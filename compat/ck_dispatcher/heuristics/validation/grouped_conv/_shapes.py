"""Measures all kernels on a few convolutions, and looks what the model's choice loses."""
from __future__ import annotations

import tempfile
from typing import List

import _paths  # noqa: F401
from tessera import Error
from tessera_ck import launching as _launching
from tessera_ck import targets as _targets

import judging
from grouped_conv_utils import GroupedConvDispatcherLib, GroupedConvKernelConfig, GroupedConvProblem


def efficiency(problem: GroupedConvProblem, dtype: str) -> judging.Choice:
    """What this machine chooses, and the best of all its legal kernels."""
    lib = GroupedConvDispatcherLib(GroupedConvKernelConfig(
        variant=problem.direction, dtype=dtype, ndim_spatial=problem.ndim_spatial))
    whole = lib._problem(problem)
    decision = lib._live().select(whole)
    count = sum(not row["refusal"] for row in decision["considered"])
    with tempfile.TemporaryDirectory() as folder:
        from tessera import Dispatcher
        alone = Dispatcher(lib.target.word, tuning_store=f"{folder}/tuning.sqlite")
        rows = alone.autotune(whole, seconds=10 * _launching.measure_seconds, top=count)
    speeds = {row["kernel"]: problem.flops / row["seconds"] / 1e12
              for row in rows if row["outcome"] == "ok" and row["seconds"] > 0}
    if decision["kernel"] not in speeds:
        raise Error(f"{decision['kernel']} was not measured in time", "timeout")
    best = max(speeds, key=speeds.__getitem__)
    predicted = decision["predicted_seconds"]
    return judging.Choice(whole.line, decision["kernel"], speeds[decision["kernel"]], best,
                          speeds[best], problem.flops / predicted / 1e12 if predicted else 0.0)


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
