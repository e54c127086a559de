#!/usr/bin/env python3
"""What a model thinks of kernels.

    predict.py --model_dir models/gemm_universal_fp32_avx512 --m 128 --n 1536 --k 7168 --layout rcr

Latency and bandwidth stand beside TFLOPS where the folder has models of them. The kernels are all
legal ones of the model's machine; for a model of the original's form they are those of the tables
in data/, which lies beside models/, where there are any.
"""
from __future__ import annotations

import gzip
import inspect
import json
import pathlib
import sys
from typing import Any, Dict, List, Optional, Sequence, Tuple

import _paths  # noqa: F401
import numpy

import tessera
from tessera import Error
from tessera_ck import forest as _forest
from tessera_ck import gemm as _gemm
from tessera_ck import problems as _problems
from tessera_ck import scripts as _scripts
from tessera_ck import targets as _targets

from feature_base import CODES
from feature_engine import FeatureEngine, OPERATION_ENGINES, feature_engine_class

TARGETS = ("tflops", "latency", "bandwidth")
HEURISTICS = pathlib.Path(__file__).resolve().parent


def model_place(model_dir: Any) -> pathlib.Path:
    """A model's folder: a relative one that is not here lies beside the scripts."""
    given = pathlib.Path(model_dir)
    return given if given.exists() or not (HEURISTICS / given).is_dir() else HEURISTICS / given


def default_model(op_type: str, dtype: str, arch: str) -> pathlib.Path:
    """Where a model of an operation lies if nobody says otherwise: in models/ beside the scripts.
    """
    return HEURISTICS / "models" / f"{op_type}_{dtype}_{arch}"


class Predictor:
    """A model folder: of train.py, of `tessera train`, or of the original.

    A folder of the original is evaluated on the features that its feature_spec.json names; they are
    computed by feature_engine, None meaning the one that the folder names or that its operation
    has. Raises FileNotFoundError where there is no model, and ValueError for a folder whose
    features the engine cannot compute, or encodes otherwise.
    """

    def __init__(self, model_dir: Any, feature_engine: Optional[FeatureEngine] = None) -> None:
        self.model_dir = model_place(model_dir)
        self.spec = self._read_spec()
        self.op_type = _problems.op_type_of(self.spec, self.model_dir)
        self.is_tessera = (self.model_dir / "manifest.json").is_file() or \
            self.spec.get("feature_engine") == "tessera"
        self._engine, self._engine_is_given = feature_engine, feature_engine is not None
        self._models: Dict[str, Any] = {}
        if not any(self._file(target) for target in TARGETS):
            raise FileNotFoundError(f"{self.model_dir} holds no model: none of " + ", ".join(
                f"model_{target}.lgbm[.gz]" for target in TARGETS) + " and no manifest.json")
        self._log_targets = tuple(self.spec.get("log_targets", ()))
        self._feature_indices: Any = None
        if not self.is_tessera:
            self._check_version()
            if not self.spec.get("feature_indices"):
                self._feature_indices = self._places_of(self.spec.get("feature_names") or [])

    def _check_version(self) -> None:
        version, name = self.spec.get("feature_encoding_version", 0), type(self.engine).__name__
        if self._engine_is_given or version == self.engine.ENCODING_VERSION:
            return
        raise ValueError(f"{self.model_dir} has another feature encoding version: it was trained "
                         f"at version {version}, and {name} is of version "
                         f"{self.engine.ENCODING_VERSION}")

    def _places_of(self, names: Sequence[str]) -> Any:
        """Where the names stand in the engine's; None where they are the engine's own."""
        known = self.engine.get_feature_names()
        if not names or list(names) == known:
            return None
        for name in names:
            if name not in known:
                raise ValueError(f"{self.model_dir} asks for the feature '{name}', which "
                                 f"{type(self.engine).__name__} cannot supply")
        return numpy.array([known.index(name) for name in names])

    def select_features(self, rows: Any) -> Any:
        """The columns of the engine's features that the model has, in its order."""
        return rows if self._feature_indices is None else rows[:, self._feature_indices]

    _select_features = select_features

    def _read_spec(self) -> Dict[str, Any]:
        file = self.model_dir / "feature_spec.json"
        if not file.is_file():
            return {}
        return json.loads(file.read_text(encoding="utf-8"))

    def _file(self, target: str) -> Optional[pathlib.Path]:
        """Of the model for a quantity; of a Tessera model its folder."""
        if self.is_tessera:
            if (self.model_dir / target / "manifest.json").is_file():
                return self.model_dir / target
            whole = (self.model_dir / "manifest.json").is_file()
            return self.model_dir if whole else None
        for suffix in (".lgbm", ".lgbm.gz"):
            file = self.model_dir / f"model_{target}{suffix}"
            if file.is_file():
                return file
        return None

    def _unpacked(self, file: pathlib.Path) -> pathlib.Path:
        """A plain copy of a .gz, which is kept beside it as in the original, if the folder can be
        written."""
        plain = file.with_suffix("") if file.suffix == ".gz" else file
        if plain != file:
            try:
                plain.write_bytes(gzip.decompress(file.read_bytes()))
            except OSError:
                return file
        return plain

    def _model(self, target: str) -> Any:
        if target not in self._models:
            file = self._file(target)
            if file is None:
                raise FileNotFoundError(f"{self.model_dir} has no model of {target}")
            self._models[target] = (tessera.Model.load(str(file)) if self.is_tessera
                                    else _forest.read(self._unpacked(file)))
        return self._models[target]

    _load_model = _model

    @property
    def engine(self) -> FeatureEngine:
        if self._engine is None:
            self._engine = _engine_for_spec({"op_type": self.op_type, **self.spec})
        return self._engine

    feature_engine = engine

    # ---- One kernel ------------------------------------------------------------------------------

    def predict_tflops(self, problem: Dict[str, Any], kernel: Dict[str, Any]) -> float:
        return float(self._predict("tflops", problem, [kernel])[0])

    def predict_latency(self, problem: Dict[str, Any], kernel: Dict[str, Any]) -> float:
        """In milliseconds."""
        return float(self._predict("latency", problem, [kernel])[0])

    def predict_bandwidth(self, problem: Dict[str, Any], kernel: Dict[str, Any]) -> float:
        """In GB/s."""
        return float(self._predict("bandwidth", problem, [kernel])[0])

    def predict_all(self, problem: Dict[str, Any], kernel: Dict[str, Any]) -> Dict[str, float]:
        """{"tflops", "latency_ms", "bandwidth_gb_s"}: of the models that there are."""
        names = {"tflops": "tflops", "latency": "latency_ms", "bandwidth": "bandwidth_gb_s"}
        return {names[target]: float(self._predict(target, problem, [kernel])[0])
                for target in TARGETS if self._file(target)}

    # ---- Many ------------------------------------------------------------------------------------

    def rank_kernels(self, problem: Dict[str, Any], configs: Sequence[Dict[str, Any]]
                     ) -> List[Tuple[str, float]]:
        """(kernel_name, TFLOPS) of each, best first."""
        if not configs:
            return []
        values = self._predict("tflops", problem, configs)
        names = [kernel_name(config) for config in configs]
        order = sorted(range(len(names)), key=lambda i: (-values[i], names[i]))
        return [(names[i], float(values[i])) for i in order]

    def select_best(self, problem: Dict[str, Any], configs: Sequence[Dict[str, Any]]) -> str:
        if not configs:
            raise ValueError("there is no kernel to choose from")
        return self.rank_kernels(problem, configs)[0][0]

    def _predict(self, target: str, problem: Dict[str, Any], kernels: Sequence[Dict[str, Any]]
                 ) -> Any:
        if self.is_tessera:
            return self._by_tessera(target, problem, kernels)
        forest = self._model(target)
        names = self._feature_names(forest)
        if len(names) != len(forest.feature_names):
            raise Error(f"{self.model_dir}: feature_spec.json has {len(names)} features and the "
                        f"model {len(forest.feature_names)}; the two must be equal", "parse_error")
        if self._feature_indices is None:
            self._feature_indices = self._places_of(names)
        usual = {name: self.spec[name] for name in ("dtype", "arch") if self.spec.get(name)}
        rows = self.engine.extract_kernels({**usual, **problem}, kernels)
        values = forest.predict(self.select_features(rows))
        if target in self._log_targets:
            return numpy.expm1(values)
        return numpy.maximum(values, 0.0)

    def _feature_names(self, forest: Any) -> List[str]:
        """Those of feature_spec.json; with feature_indices the model has a part of them."""
        names = self.spec.get("feature_names") or forest.feature_names
        places = self.spec.get("feature_indices") or []
        if places and len(names) != len(forest.feature_names):
            if not all(isinstance(each, int) and 0 <= each < len(names) for each in places):
                raise Error(f"{self.model_dir}: feature_indices of feature_spec.json must be "
                            f"places in its {len(names)} feature_names", "parse_error")
            return [names[each] for each in places]
        return names

    def _by_tessera(self, target: str, problem: Dict[str, Any], kernels: Sequence[Dict[str, Any]]
                    ) -> Any:
        model, whole = self._model(target), _problems.problem_of(self.op_type, problem, self.spec)
        seconds = numpy.array(model.predict_all(whole, [kernel_name(each) for each in kernels]))
        if target == "latency":
            return seconds * 1e3
        return (whole.flops / 1e12 if target == "tflops" else whole.bytes / 1e9) / seconds


def _engine_for_spec(spec: Dict[str, Any]) -> FeatureEngine:
    """The engine that a feature_spec.json names, or that its operation has; GEMM's where it says
    neither. Raises ValueError for a name that is unknown."""
    name, op_type = spec.get("feature_engine"), str(spec.get("op_type", ""))
    if name in (None, "tessera"):
        name = OPERATION_ENGINES.get(op_type, "GemmUniversalFeatureEngine")
        if op_type.startswith("grouped_conv"):
            name = "GroupedConvFeatureEngine"
    kind = feature_engine_class(str(name))
    if name == "GroupedConvFeatureEngine" and not set(spec.get("feature_names", [])) <= set(
            kind().get_feature_names()):
        kind = feature_engine_class("GroupedConvLatestFeatureEngine")
    taken = inspect.signature(kind.__init__).parameters
    hardware = {key: value for key, value in (spec.get("hardware") or {}).items() if key in taken}
    return kind(**hardware)  # type: ignore[no-any-return]


def kernel_name(config: Dict[str, Any]) -> str:
    """A row's kernel: "kernel_name" of the original's rows, "kernel" of Tessera's."""
    name = config.get("kernel_name", config.get("kernel"))
    if not name:
        raise Error("a configuration has no 'kernel_name'", "not_found")
    return str(name)


def legal_configs(target: str, dtype: str, layout: str, op_type: str = "gemm_universal"
                  ) -> List[Dict[str, Any]]:
    """Rows, as in the original's data, of a target's legal GEMM kernels."""
    machine = _targets.resolve(target)
    names = _gemm.legal_kernels(machine, dtype, layout,
                                where=["epilogue=none", *_gemm.WHERE.get(op_type, [])])
    return [_problems.row_of_name(name) for name in names]


def ranked(predictor: Predictor, problem: Dict[str, Any], top: int, rows: Dict[str, Dict[str, Any]]
           ) -> List[Tuple[str, float]]:
    """The best of all legal kernels of the model's machine; for a model of the original's form, of
    the candidates() given."""
    if predictor.is_tessera:
        whole = _problems.problem_of(predictor.op_type, problem, predictor.spec)
        most = 0 if _gemm.names_of(predictor.op_type) else top  # 0: all
        rows = [row for row in predictor._model("tflops").rank(whole, top=most)
                if _gemm.is_kernel_of(predictor.op_type, row["kernel"])]
        return [(row["kernel"], whole.flops / 1e12 / row["predicted"]) for row in rows[:top]]
    return predictor.rank_kernels(problem, list(rows.values()))[:top]


def candidates(predictor: Predictor, problem: Dict[str, Any]) -> Dict[str, Dict[str, Any]]:
    """Rows of the kernels of a problem's type and layout, by name: those of data/ beside the
    models, or else the legal ones of the model's machine that its features know."""
    from frames import original_files, read_table
    found: Dict[str, Dict[str, Any]] = {}
    for file in original_files(predictor.model_dir.resolve().parents[1] / "data"):
        for row in read_table(file).to_dict("records"):
            if all(row.get(key, problem[key]) == problem[key] for key in ("dtype", "layout")):
                sizes = {key for key in row if key.upper() in problem or key in problem}
                found.setdefault(row["kernel_name"], {key: value for key, value in row.items()
                                                      if key not in sizes})
    return found or {
        row["kernel_name"]: row for row in legal_configs(
            predictor.spec.get("arch", ""), problem["dtype"], problem["layout"], predictor.op_type)
        if row["pipeline"] in CODES["pipeline"]}


def line_of(predictor: Predictor, problem: Dict[str, Any], kernel: Dict[str, Any], tflops: float
            ) -> str:
    """What the models think of a kernel, in a line."""
    told = f"  {tflops:10.3f} TFLOPS"
    for target, ask, unit in (("latency", predictor.predict_latency, "ms"),
                              ("bandwidth", predictor.predict_bandwidth, "GB/s")):
        if predictor._file(target) and (predictor.is_tessera is False or
                                        (predictor.model_dir / target).is_dir()):
            told += f"  {ask(problem, kernel):10.4g} {unit}"
    return f"{told}  {kernel_name(kernel)}"


def asked(doc: Any, *rows: Any) -> Tuple[Any, Predictor, Dict[str, Any], str]:
    """The options of a script that asks a model: they, the model, the problem and its line."""
    options = _scripts.parsed(doc, ("--model_dir", str), *((f"--{axis}", int) for axis in "mnk"),
                              ("--layout", "rcr"), ("--dtype", None, "the model's own, or fp8"),
                              *rows)
    predictor = Predictor(options.model_dir)
    dtype = options.dtype or _problems.dtype_of(predictor.spec, predictor.model_dir) or "fp8"
    problem = {"M": options.m, "N": options.n, "K": options.k, "dtype": dtype,
               "layout": options.layout}
    return options, predictor, problem, _problems.problem_of("gemm_universal", problem).line


def main() -> int:
    options, predictor, problem, line = asked(__doc__, ("--top", 5))
    folder = predictor._file("tflops") or predictor.model_dir
    print(f"tessera predict --model {folder} {line} --top {options.top}"
          if predictor.is_tessera else
          f"{folder}: a model of the original, for {predictor.spec.get('arch', 'an unnamed')}")
    rows = {} if predictor.is_tessera else candidates(predictor, problem)
    for name, tflops in ranked(predictor, problem, options.top, rows):
        print(line_of(predictor, problem, rows.get(name, {"kernel_name": name}), tflops))
    return 0


if __name__ == "__main__":
    sys.exit(_scripts.guarded(main))
