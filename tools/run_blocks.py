#!/usr/bin/env python3
"""Runs the code blocks of README.md and docs/*.md: Python, C, C++ and shell, fenced and indented.

Blocks of a page run in their order, in one folder, with a kernel cache of their own. A comment that
is written above a block, and that readers do not see, says what the block takes for granted:

    <!-- run: before CODE -->    lines that run before it, in its language
    <!-- run: no, REASON -->     it cannot run here: it needs a GPU, hours, or stands for many
    <!-- run: explain, REASON --> `tessera explain` takes the place of `tessera run` and `bench`

Commands `./dev` and `python3 FILE` are not run: the word, the file and its options must exist.
Whatever is no code, such as a formula or a listing, is left out.

usage: run_blocks.py BUILD [PAGE...]
"""
import ast
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINKED = ("bench", "data", "models", "examples", "compat", "tools")  # folders that blocks name
SHELL = re.compile(r"(?:\w+=\S+ )*(?:tessera|\./dev|python3?|pip|cc|ctest|tools/\S+|export|taskset"
                   r"|\$EDITOR|for|done|build/\S+)\b|\$EDITOR")
DIRECTIVE = re.compile(r"<!-- run: (no|explain|before)\b,?\s*(.*?)\s*-->", re.DOTALL)
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
    before = block.detail if block.directive == "before" else ""
    if "int main(" in block.text:
        return before + block.text
    lines = (before + "\n" + block.text).splitlines()
    first = [line for line in lines if line.startswith("#")]
    first += {"c": ["#include <stdio.h>", "#include <tessera/tessera.h>"],
              "cpp": ["#include <tessera/tessera.hpp>", "#include <vector>"]}[block.language]
    rest = [line for line in lines if not line.startswith("#")]
    end = "return tsr_error()[0] != 0; }" if block.language == "c" else "return 0; }"
    return "\n".join([*first, "int main(void) {", *rest, end]) + "\n"


class Runner:
    def __init__(self, build, folder):
        self.build, self.folder = build, folder
        self.environment = dict(
            os.environ, PYTHONPATH=str(ROOT / "python"), EDITOR="true", PYTHON=sys.executable,
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
        before = block.detail if block.directive == "before" else ""
        return self.start(sys.executable, "-c", before + "\n" + block.text)

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
        script, wrong = ["set -eu"], []
        if block.directive == "before":
            script.append(block.detail)
        for line in lines:
            words = line.split()
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


def explained(line):
    """The problem of a command `tessera run` or `tessera bench`, explained."""
    found = re.match(r"tessera (?:run|bench) (\w+(?: [a-z_0-9]+=\S+)+)(.*)", line)
    options = re.findall(r"--(?:target|dtype) \S+", found[2]) if found else []
    return ["tessera explain " + " ".join([found[1], *options]) + " >/dev/null"] if found else []


def unknown_words(line):
    word = line.split("#")[0].split()[1:2]
    known = re.findall(r"^  ([a-z-]+(?:  |$| \[))", (ROOT / "dev").read_text(), re.MULTILINE)
    known = {name.split()[0] for name in known}
    return [f"./dev has no command {word[0]}"] if word and word[0] not in known else []


def unknown_options(words):
    if words[1] == "-m":
        return [] if (ROOT / "python" / words[2]).is_dir() else [f"no module {words[2]}"]
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


def run_page(path, build, scratch, counts, torch):
    folder = scratch / path.stem
    folder.mkdir()
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name)
    runner = Runner(build, folder)
    for block in blocks_of(path):
        if block.language not in {"python", "c", "cpp", "shell", "bash", "json"}:
            counts["no code"] += 1
            continue
        needs_torch = block.language == "python" and "torch" in block.text + path.stem
        if block.directive == "no" or (needs_torch and not torch):
            counts["left out"] += 1
            print(f"left out  {block}: {block.detail or 'needs PyTorch, which is not here'}")
            continue
        start = time.monotonic()
        failure = runner.run(block)
        counts["failed" if failure else "explained" if block.directive == "explain" else "ran"] += 1
        print(f"{'FAILED' if failure else 'ok':9} {block} {block.language}, "
              f"{time.monotonic() - start:.1f} s{': ' + failure if failure else ''}", flush=True)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1]).resolve()
    pages = [ROOT / page for page in sys.argv[2:]] or [ROOT / "README.md",
                                                       *sorted(ROOT.glob("docs/*.md"))]
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="tessera-blocks-"))
    counts = dict.fromkeys(["ran", "explained", "left out", "no code", "failed"], 0)
    torch = has_module("torch")
    try:
        for page in pages:
            run_page(page, build, scratch, counts, torch)
    finally:
        shutil.rmtree(scratch)
    print("blocks: " + ", ".join(f"{number} {what}" for what, number in counts.items()))
    sys.exit(1 if counts["failed"] else 0)


if __name__ == "__main__":
    main()
