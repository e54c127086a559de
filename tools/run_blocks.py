#!/usr/bin/env python3
"""Runs the code blocks of the pages: Python, C, C++ and shell, fenced and indented.

Blocks of a page run in their order, in one folder, with a kernel cache of their own. A comment that
is written above a block, and that readers do not see, says what the block takes for granted:

    <!-- run: before CODE -->     lines that run before it, in its language
    <!-- run: with A => B; C => D
    CODE -->                      B takes the place of A in the block, so that it takes seconds;
                                  the lines that follow run before it
    <!-- run: needs MODULES, FILE
    CODE -->                      as `before`, where Python has these modules; elsewhere the tests
                                  in FILE run the same
    <!-- run: explain, REASON --> `tessera explain` takes the place of `tessera run` and `bench`
    <!-- run: no, REASON -->      it cannot run here, for one of the reasons of REASONS

Commands `./dev` and `python3 FILE` are not run: the word, the file and its options must exist.
Whatever is no code, such as a formula or a listing, is left out.

usage: run_blocks.py BUILD [PAGE...]
"""
import ast
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Folders that blocks name.
LINKED = ("bench", "data", "models", "examples", "compat", "tools", "integrations")
PAGES = ("README.md", "docs/*.md", "docs/ladder/*.md", "integrations/README.md")
SHELL = re.compile(r"(?:\w+=\S+ )*(?:tessera|\./dev|python3?|pip|cc|g\+\+|ctest|tools/\S+|export"
                   r"|taskset|vllm|\$EDITOR|for \w+ in|done|build/\S+)(?:\s|$)|\$EDITOR")
DIRECTIVE = re.compile(r"<!-- run: (no|explain|before|with|needs)\b,?\s*(.*?)\s*-->", re.DOTALL)
# Why a block may be left out: the beginning of its reason.
REASONS = ("it needs a GPU", "it takes minutes", "tested by ")
# What follows a command behind three spaces is said to the reader.
REMARK = re.compile(r"\s{3,}[^\s#].*$")
SECONDS = 600  # the most for one block


class Block(NamedTuple):
    page: str
    line: int
    language: str
    text: str
    directive: str = ""
    detail: str = ""

    def __str__(self):
        return f"{self.page}:{self.line}"

    def before(self):
        """The lines that run before it."""
        if self.directive == "before":
            return self.detail
        return self.detail.partition("\n")[2] if self.directive in {"with", "needs"} else ""

    def smaller(self):
        """The block with what its directive `with` replaces, and what was not found there."""
        text, missing = self.text, []
        pairs = self.detail.partition("\n")[0].split("; ") if self.directive == "with" else []
        for old, _, new in (pair.partition(" => ") for pair in pairs):
            missing += [] if old in text else [f"the block has no '{old}'"]
            text = text.replace(old, new)
        return self._replace(text=text), missing


def language_of(text):
    """The language of an indented block: shell, python, or "" for what is no code."""
    lines = [line for line in text.splitlines() if line.strip()]
    if all(SHELL.match(line) or line.startswith(" ") for line in lines):
        return "shell"
    try:
        ast.parse(text)
    except SyntaxError:
        return ""
    return "python" if re.search(r"\btessera\.|\bimport ", text) else ""


def blocks_of(path):
    """The blocks of a page, in their order."""
    text = path.read_text(encoding="utf-8")
    name = path.relative_to(ROOT).as_posix()
    pattern = re.compile(
        r"^(?P<directive><!-- run:(?:(?!-->).)*-->\n+)?"
        r"(?:```(?P<language>\w*)\n(?P<fenced>.*?)^```$"
        r"|(?P<indented>(?:    [^\n]+\n|\n(?=    ))+))",
        re.DOTALL | re.MULTILINE)
    for found in pattern.finditer(text):
        line = text.count("\n", 0, found.start("fenced" if found["fenced"] is not None
                                               else "indented")) + 1
        body, language = found["fenced"], found["language"]
        if body is None:
            body = re.sub(r"^    ", "", found["indented"], flags=re.MULTILINE)
            line += body.startswith("\n")
            body = body.lstrip("\n")
            language = language_of(body)
        kind = DIRECTIVE.match(found["directive"] or "")
        yield Block(name, line, language, body, *(kind.groups() if kind else ("", "")))


def wrapped(block):
    """The text of a program in C or C++: statements go into main, includes before it."""
    before = block.before()
    if "int main(" in block.text:
        return before + block.text
    lines = (before + "\n" + block.text).splitlines()
    first = [line for line in lines if line.startswith("#")]
    first += {"c": ["#include <stdio.h>", "#include <tessera/tessera.h>"],
              "cpp": ["#include <tessera/tessera.hpp>", "#include <vector>"]}[block.language]
    rest = [line for line in lines if not line.startswith("#")]
    end = "return tsr_error()[0] != 0; }" if block.language == "c" else "return 0; }"
    return "\n".join([*first, "int main(void) {", *rest, end]) + "\n"


def python_path():
    """The package and the plugs of this checkout."""
    plugs = sorted(path for path in (ROOT / "integrations").iterdir() if path.is_dir())
    return os.pathsep.join(map(str, [ROOT / "python", *plugs]))


class Runner:
    def __init__(self, build, folder):
        self.build, self.folder = build, folder
        self.environment = dict(
            os.environ, PYTHONPATH=python_path(), EDITOR="true", PYTHON=sys.executable,
            TESSERA_LIBRARY=str(build / "src/libtessera.so.0"),
            TESSERA_CACHE_DIR=str(folder.parent / "cache"),
            PATH=f"{build / 'bin'}:{os.environ['PATH']}")

    def start(self, *command):
        """A sentence about what failed, or an empty one."""
        try:
            found = subprocess.run(command, cwd=self.folder, env=self.environment, text=True,
                                   capture_output=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return f"took more than {SECONDS} seconds"
        said = (found.stdout + found.stderr).strip()[-1500:]
        return f"exit status {found.returncode}\n{said}" if found.returncode else ""

    def python(self, block):
        return self.start(sys.executable, "-c", block.before() + "\n" + block.text)

    def program(self, block):
        c = block.language == "c"
        source = self.folder / f"block{block.line}.{'c' if c else 'cc'}"
        source.write_text(wrapped(block))
        program = source.with_suffix("")
        compiler = ("cc", "-std=c99") if c else ("c++", "-std=c++20")
        libraries = self.build / "src"
        return self.start(*compiler, f"-I{ROOT}/include", f"-I{ROOT}/src", str(source), "-o",
                          str(program), f"-L{libraries}", "-ltessera",
                          f"-Wl,-rpath,{libraries}") or self.start(str(program))

    def shell(self, block):
        lines = [REMARK.sub("", line) for line in block.text.splitlines()]
        script, wrong = ["set -eu", *block.before().splitlines()], []
        for line in lines:
            words = command_of(line)
            if words[:1] == ["./dev"]:
                wrong += unknown_words(line)
            elif words[:1] in (["python3"], ["python"]) or line.startswith("tools/"):
                wrong += unknown_options(words)
            elif words[:1] in (["pip"], ["cc"]):
                continue
            elif block.directive == "explain":
                script += explained(line)
            else:
                script.append(line)
        if block.directive == "explain" and not any("explain" in line for line in script):
            wrong.append("no command here has a problem that can be explained")
        return "; ".join(wrong) or self.start("bash", "-c", "\n".join(script))

    def run(self, block):
        run = {"python": self.python, "c": self.program, "cpp": self.program, "shell": self.shell,
               "json": self.json, "bash": self.shell}
        return run[block.language](block)

    def json(self, block):
        """A kernel set: its kernels can be listed."""
        (self.folder / "set.json").write_text(block.text)
        return self.start(sys.executable, "-c",
                          "import tessera; tessera.KernelSet.from_json(open('set.json').read())")


def command_of(line):
    """The words of a command, without the processors that `taskset` gives it."""
    words = line.split()
    return words[3:] if words[:1] == ["taskset"] else words


def explained(line):
    """The problems of a command `tessera run`, `bench` or `search`, explained; other commands of
    `tessera` run as they are."""
    found = re.match(r"tessera (?:run|bench|search) (.*)", line)
    if not found:
        return [line] if line.startswith("tessera ") else []
    problem = re.match(r"\w+(?: [a-z_0-9]+=\S+)+", found[1])
    options = re.findall(r"--(?:shapes|set|dtype|layout|target) \S+", found[1])
    words = ([problem[0]] if problem else []) + options
    return ["tessera explain " + " ".join(words) + " >/dev/null"] if words else []


def unknown_words(line):
    word = line.split("#")[0].split()[1:2]
    known = re.findall(r"^  ([a-z-]+(?:  |$| \[))", (ROOT / "dev").read_text(), re.MULTILINE)
    known = {name.split()[0] for name in known}
    return [f"./dev has no command {word[0]}"] if word and word[0] not in known else []


def unknown_options(words):
    if len(words) == 1:
        return []
    if words[1] == "-m":
        known = (ROOT / "python" / words[2].replace(".", "/")).with_suffix(".py").exists()
        known = known or (ROOT / "python" / words[2]).is_dir() or has_module(words[2])
        return [] if known else [f"no module {words[2]}"]
    file = ROOT / (words[1] if words[0].startswith("python") else words[0])
    if not file.exists():
        return [f"no file {file.relative_to(ROOT)}"]
    text = file.read_text() + "".join(path.read_text() for path in file.parent.glob("*.py"))
    options = [word.partition("=")[0].strip("[]") for word in words]
    options = [word for word in options if word.startswith("--")]
    return [f"{file.name} has no option {word}" for word in options if word not in text]


def has_module(name):
    return subprocess.run([sys.executable, "-c", f"import {name}"],
                          capture_output=True).returncode == 0


def left_out(block, modules):
    """Why a block does not run here, or an empty sentence. `modules` remembers what Python has."""
    def missing(names):
        for name in names:
            if name not in modules:
                modules[name] = has_module(name)
        return [name for name in names if not modules[name]]
    if block.directive == "no":
        return block.detail
    if block.directive == "needs":
        names, _, tests = block.detail.partition("\n")[0].partition(", ")
        if not (ROOT / tests).exists():
            return f"no file {tests}"
        return f"tested by {tests}" if missing(names.split()) else ""
    torch = block.language == "python" and "torch" in block.text + pathlib.Path(block.page).stem
    return "tested by this after ./dev setup --torch" if torch and missing(["torch"]) else ""


def run_block(runner, block, counts, modules):
    """Counts what became of a block, and prints it."""
    reason = left_out(block, modules)
    if reason:
        kind = next((kind for kind in REASONS if reason.startswith(kind)), "")
        counts["left out" if kind else "failed"] += 1
        print(f"{'left out' if kind else 'FAILED':9} {block}: {reason}", flush=True)
        return
    start, used = time.monotonic(), processor_time()
    block, missing = block.smaller()
    failure = "; ".join(missing) or runner.run(block)
    counts["failed" if failure else "explained" if block.directive == "explain" else "ran"] += 1
    print(f"{'FAILED' if failure else 'ok':9} {block} {block.language}, "
          f"{time.monotonic() - start:.1f} s, processors {processor_time() - used:.1f} s"
          f"{': ' + failure if failure else ''}", flush=True)


def processor_time():
    """Seconds that the children which have ended took of the processors."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_page(path, build, scratch, counts, modules):
    folder = scratch / path.relative_to(ROOT).as_posix().replace("/", "_").removesuffix(".md")
    folder.mkdir()
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name)
    if path.parent.name == "ladder":
        for program in (ROOT / "examples/ladder").iterdir():
            (folder / program.name).symlink_to(program)
    runner = Runner(build, folder)
    for block in blocks_of(path):
        if block.language in {"python", "c", "cpp", "shell", "bash", "json"}:
            run_block(runner, block, counts, modules)
        else:
            counts["no code"] += 1


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1]).resolve()
    pages = [page for pattern in sys.argv[2:] or PAGES for page in sorted(ROOT.glob(pattern))]
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="tessera-blocks-"))
    counts = dict.fromkeys(["ran", "explained", "left out", "no code", "failed"], 0)
    modules = {}
    try:
        for page in pages:
            run_page(page, build, scratch, counts, modules)
    finally:
        shutil.rmtree(scratch)
    print("blocks: " + ", ".join(f"{number} {what}" for what, number in counts.items()) +
          f"; {processor_time():.0f} s of the processors")
    sys.exit(1 if counts["failed"] else 0)


if __name__ == "__main__":
    main()
