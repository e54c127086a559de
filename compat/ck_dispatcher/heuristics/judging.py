"""How good a model's choices are on what was measured: what the validating scripts share."""
from __future__ import annotations

import csv
import math
import pathlib
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import _paths  # noqa: F401
import tessera
from tessera import Error
from tessera_ck import gemm as _gemm
from tessera_ck import scripts as _scripts

from predict import Predictor

ENDINGS = (".sqlite", ".parquet", ".csv")


class Choice(NamedTuple):
    """What a model chose for one problem, among the kernels that were measured on it."""
    problem: str
    chosen: str
    chosen_tflops: float
    best: str
    best_tflops: float
    predicted_tflops: float

    @property
    def efficiency(self) -> float:
        return self.chosen_tflops / self.best_tflops


def data_files(place: Any) -> List[str]:
    """The measurements in a folder, or the file itself."""
    path = pathlib.Path(place)
    if path.is_file():
        return [str(path)]
    found = sorted(str(file) for file in path.glob("*") if file.suffix in ENDINGS)
    if not found:
        raise Error(f"{path} holds no measurements: no file that ends in " + ", ".join(ENDINGS),
                    "not_found")
    return found


def measured(places: Iterable[Any], op_type: str = "gemm_universal"
             ) -> List[Tuple[tessera.Problem, Dict[str, float]]]:
    """The TFLOPS of each kernel of the operation that was right, for each problem."""
    found: Dict[str, Dict[str, float]] = {}
    problems: Dict[str, tessera.Problem] = {}
    for place in places:
        for file in data_files(place):
            for problem, rows in _scripts.by_problem(_scripts.rows_of(file)):
                problems[problem.line] = problem
                for row in rows:
                    if not _gemm.is_kernel_of(op_type, row["kernel"]):
                        continue
                    if row["outcome"] == "ok" and float(row["seconds"]) > 0:
                        found.setdefault(problem.line, {})[row["kernel"]] = \
                            problem.flops / float(row["seconds"]) / 1e12
    return [(problems[line], kernels) for line, kernels in found.items()]


def predictions(predictor: Predictor, problem: tessera.Problem, kernels: Iterable[str]
                ) -> Dict[str, float]:
    """Predicted TFLOPS of the kernels that the model has an opinion on; {} where it has none on the
    problem."""
    if not predictor.is_tessera:
        raise Error(f"{predictor.model_dir} is a model of the original, whose features need rows "
                    "of its own data; Predictor.rank_kernels() takes these", "unsupported")
    try:
        rows = predictor._model("tflops").rank(problem)
    except Error:
        return {}
    wanted = set(kernels)
    return {row["kernel"]: problem.flops / 1e12 / row["predicted"] for row in rows
            if row["kernel"] in wanted and row["predicted"] > 0}


def choices(predictor: Predictor, data: Sequence[Tuple[tessera.Problem, Dict[str, float]]]
            ) -> List[Choice]:
    """For each problem that the model has an opinion on."""
    made = []
    for problem, kernels in data:
        predicted = predictions(predictor, problem, kernels)
        if predicted:
            chosen = max(sorted(predicted), key=predicted.__getitem__)
            best = max(sorted(kernels), key=kernels.__getitem__)
            made.append(Choice(problem.line, chosen, kernels[chosen], best, kernels[best],
                               predicted[chosen]))
    return made


def percentile(values: Sequence[float], share: float) -> float:
    """By linear interpolation between neighbours."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def summary(efficiencies: Sequence[float]) -> Dict[str, float]:
    return {"problems": len(efficiencies), "mean": sum(efficiencies) / len(efficiencies),
            "median": percentile(efficiencies, 0.5), "p10": percentile(efficiencies, 0.1),
            "min": min(efficiencies)}


def text_of(found: Dict[str, float]) -> str:
    return (f"{found['problems']} problems: mean {100 * found['mean']:.2f}%, median "
            f"{100 * found['median']:.2f}%, P10 {100 * found['p10']:.2f}%, min "
            f"{100 * found['min']:.2f}%")


def errors(predictor: Predictor, data: Sequence[Tuple[tessera.Problem, Dict[str, float]]]
           ) -> Dict[str, float]:
    """R2 and RMSE of the predicted TFLOPS of all measured kernels."""
    pairs = [(value, predicted[name]) for problem, kernels in data
             for predicted in [predictions(predictor, problem, kernels)]
             for name, value in kernels.items() if name in predicted]
    if not pairs:
        raise Error("the model has no opinion on any of the problems", "not_found")
    mean = sum(value for value, _ in pairs) / len(pairs)
    left = sum((value - guess) ** 2 for value, guess in pairs)
    spread = sum((value - mean) ** 2 for value, _ in pairs)
    return {"rows": len(pairs), "rmse": math.sqrt(left / len(pairs)),
            "r2": 1 - left / spread if spread > 0 else float(left == 0)}


def write_choices(file: Any, made: Sequence[Choice]) -> None:
    pathlib.Path(file).parent.mkdir(parents=True, exist_ok=True)
    with open(file, "w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow([*Choice._fields, "efficiency"])
        for each in made:
            writer.writerow([*each, each.efficiency])


def read_choices(file: Any) -> Dict[str, Choice]:
    """Raises Error for a file that write_choices() did not write."""
    found = {}
    try:
        with open(file, newline="", encoding="utf-8") as stream:
            for row in csv.DictReader(stream):
                words = [row[name] for name in Choice._fields]
                found[row["problem"]] = Choice(words[0], words[1], float(words[2]), words[3],
                                               float(words[4]), float(words[5]))
    except OSError as error:
        raise Error(f"{file} cannot be read: {error.strerror}", "io_error") from None
    except (KeyError, ValueError, TypeError) as error:
        raise Error(f"{file} holds no choices of a model: {error!r}", "parse_error") from None
    return found


def conv_data(direction: str, dtype: str, arch: str, checkout: Optional[Any] = None
              ) -> pathlib.Path:
    """The shipped measurements of convolutions."""
    root = pathlib.Path(checkout or pathlib.Path(__file__).resolve().parents[3])
    return root / "data" / f"conv_{arch}_{dtype}_{direction}.parquet"
