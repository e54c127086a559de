"""What the scripts share: the command that they run, and what sweeps measured."""
from __future__ import annotations

import argparse
import csv
import os
import pathlib
import shlex
import sys
import tempfile
from typing import Any, Callable, Dict, Iterable, List, Sequence, Tuple

import tessera
from tessera import Error

# The words that come first on the command line, without a name.
POSITIONAL = {"generate": ["kernel"], "show": ["kernel"], "data": ["what", "files"],
              "problems": ["set"], "targets": ["target", "file"], "predict": ["problem"],
              "search": ["problem"], "explain": ["problem"], "run": ["problem"]}


def line_of(name: str, options: Dict[str, Any]) -> str:
    """The command as one types it."""
    words = ["tessera", name]
    given = {key: value for key, value in options.items() if value is not None}
    for key in POSITIONAL.get(name, []):
        value = given.pop(key, [])
        words += [str(each) for each in (value if isinstance(value, (list, tuple)) else [value])]
    for key, value in given.items():
        option = "--" + key.rstrip("_").replace("_", "-")
        if value is True:
            words.append(option)
        elif value is not False:
            values = value if isinstance(value, (list, tuple)) else [value]
            words += [option, *map(str, values)]
    return " ".join(map(shlex.quote, words))


def parser_of(doc: Any, *rows: Any) -> argparse.ArgumentParser:
    """A script's options. A row has the words of an option, or the name of what comes without one;
    its default, or a type where it must be given; what --help says of it; and what else argparse
    takes. A value has the type of its default; a list takes all words that follow."""
    parser = argparse.ArgumentParser(description=doc,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for words, usual, *rest in rows:
        how: Dict[str, Any] = {"help": (rest[0] or None) if rest else None}
        if isinstance(usual, type):
            how["type"] = usual
            if words.startswith("-"):
                how["required"] = True
        elif usual is False:
            how["action"] = "store_true"
        elif isinstance(usual, list):
            how.update(default=usual, nargs="*")
        else:
            how.update(default=usual, type=str if usual is None else type(usual))
        parser.add_argument(*words.split(), **{**how, **(rest[1] if len(rest) > 1 else {})})
    return parser


def parsed(doc: Any, *rows: Any) -> argparse.Namespace:
    return parser_of(doc, *rows).parse_args()


def run(name: str, **options: Any) -> Dict[str, Any]:
    """Prints the command, and then runs it in this process. The result has "exit_code"."""
    print(line_of(name, options), flush=True)
    return tessera.command(name, check=False, **options)


def guarded(main: Callable[[], int]) -> int:
    """A script's exit code; what cannot be done is a sentence on stderr, and 1."""
    try:
        return main()
    except (Error, FileNotFoundError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1


def rows_of(store: Any) -> List[Dict[str, str]]:
    """The measurements of a store."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "rows.csv")
        tessera.command("data", what="export", files=[str(store), file])
        with open(file, newline="", encoding="utf-8") as stream:
            return [row for row in csv.DictReader(stream) if row.get("kind", "row") == "row"]


def by_problem(rows: Iterable[Dict[str, str]]
               ) -> List[Tuple[tessera.Problem, List[Dict[str, str]]]]:
    """Rows of each problem, in the order in which they were measured."""
    groups: Dict[str, List[Dict[str, str]]] = {}
    for row in rows:
        groups.setdefault(row["problem"], []).append(row)
    return [(tessera.Problem(line), found) for line, found in groups.items()]


def sweep(problems: Sequence[str], kernels: Sequence[str], store: Any,
          **options: Any) -> Dict[str, Any]:
    """Measures into a store, whose folder is made; the problems lie in a file beside it."""
    place = pathlib.Path(store)
    place.parent.mkdir(parents=True, exist_ok=True)
    file = place.with_suffix(".problems.txt")
    file.write_text("".join(f"{line}\n" for line in problems), encoding="ascii")
    return run("sweep", problems=[str(file)], kernels=list(kernels), store=str(place), **options)


def gemm_sizes(problem: tessera.Problem) -> Dict[str, int]:
    return {axis: int(problem.get(axis)) for axis in "mnk"}


def worse_options(names: Iterable[str], why: str, given: Any, usual: Dict[str, Any]) -> None:
    """Says which options were given and change nothing."""
    for name in names:
        if getattr(given, name) != usual[name]:
            print(f"--{name.replace('_', '-')} changes nothing: {why}", file=sys.stderr)
