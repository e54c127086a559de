#!/usr/bin/env python3
"""Whether a new model may replace an old one, on the problems that both chose for.

    compare_model_predictions.py --old-predictions F --new-predictions F --variant bwd_data

The files are those of validate_ml_vs_oracle.py --save-predictions. Exit code 1 where the new mean
or median is more than 0.5% below the old one, P10 more than 2%, or a problem more than 10%.
"""
from __future__ import annotations

import sys

import _paths  # noqa: F401
from tessera import Error
from tessera_ck import scripts as _scripts

import judging

# How much may be lost, of 1.
LIMITS = {"mean": 0.005, "median": 0.005, "p10": 0.02}
WORST = 0.10
SAME = 0.001  # efficiencies that are nearer than this are the same


def main() -> int:
    options = _scripts.parsed(
        __doc__, ("--old-predictions", str), ("--new-predictions", str),
        ("--variant", "bwd_data", "printed"))
    old = judging.read_choices(options.old_predictions)
    new = judging.read_choices(options.new_predictions)
    both = sorted(set(old) & set(new))
    if not both:
        raise Error("the two files have no problem in common", "not_found")
    pairs = [(old[line].efficiency, new[line].efficiency) for line in both]
    agree = sum(old[line].chosen == new[line].chosen for line in both)
    print(f"{options.variant}: agreement {agree}/{len(both)} ({100 * agree / len(both):.1f}%)")
    before, after = (judging.summary([pair[i] for pair in pairs]) for i in (0, 1))
    is_good = True
    for name, limit in LIMITS.items():
        delta = after[name] - before[name]
        is_good = is_good and delta >= -limit
        print(f"{name:7} old {100 * before[name]:6.2f}%  new {100 * after[name]:6.2f}%  delta "
              f"{100 * delta:+.2f}%  (limit {-100 * limit:.1f}%)")
    better = sum(b > a + SAME for a, b in pairs)
    worse = sum(b < a - SAME for a, b in pairs)
    print(f"improved {better}, same {len(pairs) - better - worse}, degraded {worse}")
    worst = min(b - a for a, b in pairs)
    is_good = is_good and worst >= -WORST
    print(f"worst problem {100 * worst:+.2f}%  (limit {-100 * WORST:.0f}%)")
    print("PASS" if is_good else "FAIL")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(_scripts.guarded(main))
