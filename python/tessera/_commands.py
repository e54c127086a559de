"""What the command line does, as functions: sweep, train, evaluate, search, report, data, ...

Options are the long options of the command with underscores, and its positional words; see
`tessera COMMAND --help`, or commands(). Results are what the command prints with --json.
"""
from __future__ import annotations

import ctypes
import json
import os
import tempfile
from typing import Any, Dict, List, Optional

from . import _abi, _interrupt
from ._abi import Error
from ._checks import checked
from ._problem import Problem
from ._values import shape_of

# The key of the rows of which a frame is made, where a result has several lists.
_ROWS = ("rows", "results", "measurements", "kernels", "problems")


def _plain(value: Any) -> Any:
    """A value as JSON has it: paths and problems as texts, NumPy's numbers as numbers."""
    if isinstance(value, (list, tuple, set)):
        return [_plain(item) for item in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return os.fsdecode(_abi.encode(value))
    if isinstance(value, Problem):
        return value.line
    if shape_of(value) == () and hasattr(value, "item"):  # a number of NumPy's
        return _plain(value.item())
    raise Error(f"an option must be a number, a text or a list of them, got "
                f"{type(value).__name__}")


def _is_line(problem: Any) -> bool:
    return isinstance(problem, Problem) or (isinstance(problem, str) and " " in problem.strip())


def _as_files(options: Dict[str, Any], folder: str) -> Dict[str, Any]:
    """Commands read files. Problems that are given as lines become one of them, and so does each
    frame of pandas; the names of problem sets and files stay."""
    given = dict(options)
    if isinstance(given.get("problem"), (str, Problem)):
        given["problem"] = str(given["problem"]).split()
    problems = given.get("problems")
    if isinstance(problems, (str, Problem)):
        problems = [problems]
    if isinstance(problems, (list, tuple)) and any(map(_is_line, problems)):
        lines = [str(problem) for problem in problems if _is_line(problem)]
        file = os.path.join(folder, "problems.txt")
        with open(file, "w", encoding="utf-8") as stream:
            stream.write("\n".join(lines) + "\n")
        given["problems"] = [p for p in problems if not _is_line(p)] + [file]
    for name, value in given.items():
        values = value if isinstance(value, (list, tuple)) else [value]
        if not any(hasattr(each, "to_csv") for each in values):
            continue
        files = []
        for i, frame in enumerate(values):
            files.append(os.path.join(folder, f"{name}{i}.csv"))
            frame.to_csv(files[-1], index=False)
        given[name] = files if isinstance(value, (list, tuple)) else files[0]
    return given


def options_of(options: Dict[str, Any]) -> str:
    """The options' JSON; those that are None are left out."""
    found = {}
    for name, value in options.items():
        if value is not None:
            try:
                found[name.rstrip("_").replace("_", "-")] = _plain(value)
            except RecursionError:
                raise Error(f"{name} must be a list that is not within itself") from None
    return _abi.as_json(found, "options take")


@checked
def command(name: str, /, *, progress: Optional[_interrupt.Progress] = None, as_frame: bool = False,
            check: bool = True, **options: Any) -> Any:
    """Runs a command in this process, and returns its result as a dict.

    Options are the command's long options with underscores. `problems` may be lines and Problems,
    and a file of measurements may be a pandas DataFrame, which is written to a file for the call.
    progress(label, done, total, what) is called from another thread; what it raises ends the work
    and is raised here, and so does Ctrl-C. as_frame: the result's rows as a pandas DataFrame, its
    other fields in .attrs. check: raises Error("verification_failed") where the command found fault
    with something; False: the dict has "exit_code".
    """
    exit_code = ctypes.c_int(0)
    with tempfile.TemporaryDirectory(prefix="tessera-") as folder:
        words = _abi.encode(options_of(_as_files(options, folder)))
        text = _interrupt.run(progress, lambda callbacks: _abi.text(
            "tsr_command", _abi.encode(name), words, callbacks, ctypes.byref(exit_code)))
    result = json.loads(text) if text.strip() else {}
    if exit_code.value != 0 and check:
        raise Error(f"{name} found fault: {text.strip()[:2000]}", "verification_failed", text)
    if isinstance(result, dict) and not check:
        result["exit_code"] = exit_code.value
    return frame_of(result) if as_frame else result


def frame_of(result: Any) -> Any:
    """The rows of a result as a pandas DataFrame; pandas is imported here and nowhere else."""
    try:
        import pandas
    except ImportError:
        raise Error("as_frame=True needs the package pandas", "not_found") from None
    if isinstance(result, list):
        return pandas.DataFrame(result)
    lists = [key for key, value in result.items()
             if isinstance(value, list) and value and isinstance(value[0], dict)]
    key = next((key for key in _ROWS if key in lists), lists[0] if lists else None)
    frame = pandas.DataFrame(result[key] if key else [result])
    frame.attrs.update({name: value for name, value in result.items() if name != key})
    return frame


def commands() -> List[Dict[str, Any]]:
    """[{"name", "summary", "example"}, ...]: what command() knows."""
    return json.loads(_abi.text("tsr_commands"))["commands"]


def sweep(**options: Any) -> Any:
    """Measures many kernels on many problems, to learn from. Takes command()'s own options too.

    sweep(problems=["wide"], kernels=["all-legal"], store="s.sqlite", budget="60s", seed=3)
    """
    return command("sweep", **options)


def train(**options: Any) -> Any:
    """Learns a model from measurements, files or frames: train(data=["s.sqlite"],
    output="model"). Needs LightGBM's library."""
    return command("train", **options)


def evaluate(**options: Any) -> Any:
    """Scores a model on measurements, files or frames: evaluate(data=["s.sqlite"],
    model="model")."""
    return command("evaluate", **options)


def search(**options: Any) -> Any:
    """Searches a large space of kernels for a problem's fastest ones:
    search(problem="gemm m=64 n=64 k=64", strategy="random", seconds=5)."""
    return command("search", **options)


def report(**options: Any) -> Any:
    """Writes a page of measurements and a model: report(data=["s.sqlite"], model="model",
    output="report.html")."""
    return command("report", **options)


def data(**options: Any) -> Any:
    """Describes, checks, merges, exports and imports measurements: data(what="describe",
    files=["s.sqlite"])."""
    return command("data", **options)


def measurements(*files: Any, **options: Any) -> Any:
    """The measurements of stores, .csv or .parquet files as one pandas DataFrame, which train() and
    evaluate() take as data."""
    frame_of([])  # says that pandas is missing before anything is written
    import pandas
    with tempfile.TemporaryDirectory(prefix="tessera-") as folder:
        file = os.path.join(folder, "rows.csv")
        command("data", what="export", files=[*files, file], **options)
        return pandas.read_csv(file)


def targets(**options: Any) -> Any:
    """The target rows that the library knows, and whether this machine can run them."""
    return command("targets", **options)
