"""CodegenRunner: writes kernels' sources by `tessera generate`, under the original's file names."""
from __future__ import annotations

import dataclasses
import json
import pathlib
import time
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence

import tessera
from tessera import Error

from . import gemm, hints, targets
from .scripts import line_of

NAMES = "kernel_names.json"


@dataclasses.dataclass
class CodegenResult:
    success: bool
    output_dir: pathlib.Path
    variant: str
    stdout: str = ""
    stderr: str = ""
    kernel_count: int = 0
    elapsed_seconds: float = 0.0
    instance_names: List[str] = dataclasses.field(default_factory=list)

    def get_generated_kernels(self) -> List[pathlib.Path]:
        return [self.output_dir / f"{name}.hpp" for name in self.instance_names]

    def print_instances(self, prefix: str = "  ") -> None:
        for name in self.instance_names:
            print(f"{prefix}{name}")


def write_headers(folder: pathlib.Path, name_of: Callable[[Dict[str, Any]], str]) -> List[str]:
    """A header with the original's name for each kernel of the folder's index.json, which includes
    the source, and kernel_names.json, which has both names."""
    index = json.loads((folder / "index.json").read_text(encoding="ascii"))
    table: Dict[str, str] = {}
    if (folder / NAMES).is_file():
        table = json.loads((folder / NAMES).read_text(encoding="ascii"))
    made = []
    for row in index["kernels"]:
        name = name_of(row["spec"])
        if table.get(name, row["name"]) != row["name"] and (folder / f"{name}.hpp").is_file():
            raise Error(f"{row['name']} and {table[name]} both would be {name}.hpp", "internal")
        table[name] = row["name"]
        (folder / f"{name}.hpp").write_text(
            f"// {row['name']}\n#pragma once\n#include \"{row['file']}\"\n", encoding="ascii")
        made.append(name)
    (folder / NAMES).write_text(json.dumps(table, indent=2, sort_keys=True) + "\n",
                                encoding="ascii")
    return made


def generate(folder: Any, variant: str, name_of: Callable[[Dict[str, Any]], str],
             **options: Any) -> CodegenResult:
    """Runs the command and writes the headers; a failure is a sentence in stderr."""
    place = pathlib.Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    options["output_dir"] = str(place)
    said = line_of("generate", options)
    result = CodegenResult(False, place, variant, said)
    try:
        found = tessera.command("generate", check=False, **options)
        result.stderr = "\n".join(str(row.get("error", row) if isinstance(row, dict) else row)
                                  for row in found.get("errors", []))
        if found["written"]:
            result.instance_names = write_headers(place, name_of)
        result.kernel_count = found["written"]
        result.success = found["written"] > 0 and not found.get("errors")
    except Error as error:
        result.stderr = str(error)
    if not result.success and not result.stderr:
        result.stderr = f"no kernel matches: {said}"
    result.elapsed_seconds = time.perf_counter() - started
    return result


class CodegenRunner:
    """Writes GEMM's kernels for one type, layout and target (None: this machine)."""

    VARIANTS = list(gemm.VARIANTS)

    def __init__(self, codegen_path: Optional[Any] = None, output_dir: Optional[Any] = None,
                 datatype: str = "fp16", layout: str = "rcr", gpu_target: Optional[str] = None,
                 max_workers: Optional[int] = None) -> None:
        hints.of_argument("codegen_path", codegen_path)
        self.codegen_path = codegen_path
        self.output_dir = pathlib.Path(output_dir or "build/generated_kernels")
        self.datatype, self.layout = datatype, layout
        self.target = targets.resolve(gpu_target)
        self.max_workers = max_workers

    def _options(self, **options: Any) -> Dict[str, Any]:
        return {**options, "target": self.target.word, "jobs": self.max_workers}

    def generate(self, variant: str = "standard", output_dir: Optional[Any] = None,
                 extra_args: Optional[Sequence[str]] = None, show_instances: bool = False
                 ) -> CodegenResult:
        """The kernels of gemm.variant_kernels(), or with extra_args all of the type, layout and
        variant that these options of `tessera generate` ask for: ["--tile", "128x*x64"]."""
        known = [*self.VARIANTS, gemm.STREAM_K]
        if variant not in known:
            raise Error(f"variant must be one of {', '.join(known)}, got '{variant}'")
        options = self._options(**_options_of(extra_args or []))
        if variant == "standard" and not extra_args:
            options["preselected"] = f"{self.datatype}_{self.layout[:3]}_essential"
        elif not extra_args:
            try:
                options["kernel"] = gemm.variant_kernels(self.target, self.datatype, self.layout,
                                                         variant)
            except Error as error:
                folder = pathlib.Path(output_dir or self.output_dir)
                return CodegenResult(False, folder, variant, stderr=str(error))
        else:
            where = gemm.WHERE[gemm.STREAMK] if variant == gemm.STREAM_K else []
            options.update(datatype=[self.datatype], layout=[self.layout[:3]], where=where,
                           variants=["standard" if where else variant])
        result = generate(output_dir or self.output_dir, variant, gemm.file_name, **options)
        if show_instances:
            result.print_instances()
        return result

    def generate_from_config(self, config: Any, output_dir: Optional[Any] = None,
                             force: bool = False, show_instances: bool = False) -> CodegenResult:
        """The kernels that the configuration describes; on a target without its pipeline those that
        Tessera takes for its types and layout."""
        variant = "config:" + config.tile_str
        folder = pathlib.Path(output_dir or self.output_dir)
        target = targets.resolve(config.gfx_arch) if config.gfx_arch else self.target
        wish = gemm.wish_of(config, target)
        if not wish.kernels:
            return CodegenResult(False, folder, variant, stderr="; ".join(wish.corrections))
        result = generate(folder, variant, gemm.file_name, kernel=wish.kernels,
                          target=target.word, jobs=self.max_workers)
        result.stdout += "".join(f"\n{sentence}" for sentence in [str(target), *wish.corrections])
        if show_instances:
            result.print_instances()
        return result

    def generate_all(self, output_dir: Optional[Any] = None) -> List[CodegenResult]:
        return [self.generate(variant, output_dir) for variant in self.VARIANTS]

    def generate_all_parallel(self, output_dir: Optional[Any] = None,
                              variants: Optional[Sequence[str]] = None, verbose: bool = True,
                              show_instances: bool = False) -> List[CodegenResult]:
        """One after another: each call emits its kernels on all processors."""
        return _said(verbose, (self.generate(variant, output_dir, None, show_instances)
                               for variant in variants or self.VARIANTS))

    def generate_configs_parallel(self, configs: Sequence[Any], output_dir: Optional[Any] = None,
                                  verbose: bool = True, show_instances: bool = False
                                  ) -> List[CodegenResult]:
        return _said(verbose, (self.generate_from_config(config, output_dir, False, show_instances)
                               for config in configs))

    def generate_batch_parallel(self, batch: Sequence[Any], output_dir: Optional[Any] = None,
                                verbose: bool = True) -> List[CodegenResult]:
        """Names of variants and configurations, mixed."""
        return [self.generate(each, output_dir) if isinstance(each, str)
                else self.generate_from_config(each, output_dir) for each in batch]

    def generate_preselected(self, preset: str = "fp16_rcr_essential",
                             output_dir: Optional[Any] = None) -> CodegenResult:
        return generate(output_dir or self.output_dir, preset, gemm.file_name, preselected=preset,
                        target=self.target.word, jobs=self.max_workers)

    def ensure_kernels_exist(self) -> bool:
        return bool(self.list_kernels()) or self.generate().success

    def list_kernels(self) -> List[pathlib.Path]:
        return sorted(self.output_dir.glob("gemm_*.hpp"))

    def categorize_kernels(self) -> Dict[str, int]:
        """How many of each kind there are. compute, memory, latency: of the shipped sets."""
        names = [path.stem for path in self.list_kernels()]
        count = {"total": len(names),
                 "preshuffle": sum(name.endswith("_preshuffle") for name in names),
                 "multi_d": sum("_multid_" in name for name in names)}
        count["standard"] = len(names) - count["preshuffle"] - count["multi_d"]
        table = {}
        if names:
            table = json.loads((self.output_dir / NAMES).read_text(encoding="ascii"))
        for part in ("compute", "memory", "latency"):
            kernels = set(tessera.KernelSet("", self.target.word).preselected(
                f"{self.datatype}_{self.layout[:3]}_{part}").kernels)
            count[part] = sum(table.get(name) in kernels for name in names)
        return count


def _options_of(words: Sequence[str]) -> Dict[str, Any]:
    options: Dict[str, Any] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name = word[2:].replace("-", "_")
            options[name] = True
        elif not name:
            raise Error(f"extra_args begin with an option such as --tile, got '{word}'")
        else:
            options[name] = [*options[name], word] if isinstance(options[name], list) else [word]
    return options


def _said(verbose: bool, results: Iterable[CodegenResult]) -> List[CodegenResult]:
    """All of them; with `verbose` each is told when it is there."""
    told = []
    for result in results:
        told.append(result)
        if verbose:
            what = f"{result.kernel_count} kernels" if result.success else result.stderr
            print(f"{result.variant}: {what}")
    return told
