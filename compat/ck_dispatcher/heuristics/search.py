#!/usr/bin/env python3
"""Searches kernels for a problem by a model's predictions; nothing is measured.

    search.py --model_dir D --m 128 --n 1536 --k 7168 --strategy random --budget 500 --top_k 10
"""
from __future__ import annotations

import random
import sys
from typing import Any, Dict, List, Optional, Tuple

import _paths  # noqa: F401
from tessera_ck import gemm as _gemm
from tessera_ck import problems as _problems
from tessera_ck import scripts as _scripts

from feature_engine import FeatureEngine
from predict import Predictor, asked

STRATEGIES = ("random", "de")


class SurrogateSearch:
    """strategy: "random", or "de", differential evolution.

    A model of Tessera's ranks all legal kernels of its machine in one call; the budget takes a
    random part of them, whatever the strategy.
    """

    def __init__(self, predictor: Predictor, feature_engine: Optional[FeatureEngine] = None,
                 strategy: str = "random", seed: int = 42) -> None:
        self.predictor, self.strategy, self.seed = predictor, strategy, seed
        self._engine = feature_engine  # may be false, as an object with a length of 0 is

    def search(self, problem: Dict[str, Any], budget: int = 500, top_k: int = 10, **kw: Any
               ) -> List[Tuple[Dict[str, Any], float]]:
        """(configuration, predicted TFLOPS) of the best, best first. kw, for "de": pop_size 20,
        mutation_rate 0.3, crossover_rate 0.7."""
        if self.strategy not in STRATEGIES:
            raise ValueError(f"strategy must be one of {', '.join(STRATEGIES)}, got "
                             f"'{self.strategy}'")
        chance = random.Random(self.seed)
        if self.predictor.is_tessera:
            return self._of_legal(problem, budget, top_k, chance)
        if self.strategy == "random":
            found = self._random(problem, budget, chance)
        else:
            found = self._evolve(problem, budget, chance, **kw)
        best = sorted(found.items(), key=lambda item: (-item[1], item[0]))[:top_k]
        return [(dict(config), tflops) for config, tflops in best]

    def _of_legal(self, problem: Dict[str, Any], budget: int, top_k: int, chance: random.Random
                  ) -> List[Tuple[Dict[str, Any], float]]:
        whole = _problems.problem_of(self.predictor.op_type, problem, self.predictor.spec)
        rows = [row for row in self.predictor._model("tflops").rank(whole)
                if _gemm.is_kernel_of(self.predictor.op_type, row["kernel"])]
        if budget < len(rows):
            kept = set(chance.sample(range(len(rows)), budget))
            rows = [row for i, row in enumerate(rows) if i in kept]
        is_gemm = self.predictor.op_type.startswith("gemm")
        found = []
        for row in rows[:top_k]:
            config = {"kernel_name": row["kernel"]}
            if is_gemm:
                config = _problems.row_of(_gemm.spec_of(row["kernel"]))
            found.append((config, whole.flops / 1e12 / row["predicted"]))
        return sorted(found, key=lambda pair: -pair[1])

    @property
    def engine(self) -> FeatureEngine:
        return self.predictor.feature_engine if self._engine is None else self._engine

    _fe = engine

    def _score(self, problem: Dict[str, Any], config: Dict[str, Any]) -> float:
        return self.predictor.predict_tflops(problem, config)

    def _draw(self, problem: Dict[str, Any], chance: random.Random) -> Optional[Dict[str, Any]]:
        """A valid configuration; None where a thousand draws give none."""
        space = self.engine.get_parameter_space()
        for _ in range(1000):
            config = {name: chance.choice(values) for name, values in space.items()}
            if self.engine.validate_config({**config, "dtype": problem.get("dtype", "fp16")}):
                return config
        return None

    def _random(self, problem: Dict[str, Any], budget: int, chance: random.Random
                ) -> Dict[Tuple[Any, ...], float]:
        found: Dict[Tuple[Any, ...], float] = {}
        for _ in range(budget):
            config = self._draw(problem, chance)
            if config is None:
                break
            key = tuple(config.items())
            if key not in found:
                found[key] = self._score(problem, config)
        return found

    def _evolve(self, problem: Dict[str, Any], budget: int, chance: random.Random,
                pop_size: int = 20, mutation_rate: float = 0.3, crossover_rate: float = 0.7
                ) -> Dict[Tuple[Any, ...], float]:
        found = self._random(problem, min(pop_size, budget), chance)
        population = list(found)
        spent = len(population)
        space = self.engine.get_parameter_space()
        while population and spent < budget:
            for place, parent in enumerate(population):
                if spent >= budget:
                    break
                spent += 1
                child = self._child(dict(parent), [dict(each) for each in population], space,
                                    chance, mutation_rate, crossover_rate)
                dtype = problem.get("dtype", "fp16")
                if not self.engine.validate_config({**child, "dtype": dtype}):
                    continue
                key = tuple(child.items())
                if key not in found:
                    found[key] = self._score(problem, child)
                if found[key] > found[parent]:
                    population[place] = key
        return found

    def _child(self, parent: Dict[str, Any], population: List[Dict[str, Any]],
               space: Dict[str, List[Any]], chance: random.Random, mutation_rate: float,
               crossover_rate: float) -> Dict[str, Any]:
        """Each field is the parent's, or a step from a third one's by the difference of two."""
        one, two, three = (chance.choice(population) for _ in range(3))
        child = {}
        for name, values in space.items():
            child[name] = parent[name]
            if chance.random() < crossover_rate:
                step = values.index(one[name]) - values.index(two[name])
                place = min(max(values.index(three[name]) + step, 0), len(values) - 1)
                child[name] = values[place]
            if chance.random() < mutation_rate / len(space):
                child[name] = chance.choice(values)
        return child


def main() -> int:
    options, predictor, problem, line = asked(
        __doc__, ("--strategy", "random", "", {"choices": STRATEGIES}), ("--budget", 500),
        ("--top_k", 10))
    word = {"random": "random", "de": "evolution"}[options.strategy]
    folder = predictor._file("tflops") or predictor.model_dir
    print(f"tessera search {line} --model {folder} --strategy {word} --budget {options.budget} "
          "--top 0")
    search = SurrogateSearch(predictor, strategy=options.strategy)
    for config, tflops in search.search(problem, budget=options.budget, top_k=options.top_k):
        words = config.get("kernel_name") or " ".join(f"{k}={v}" for k, v in config.items())
        print(f"  {tflops:10.3f} TFLOPS  {words}")
    return 0


if __name__ == "__main__":
    sys.exit(_scripts.guarded(main))
