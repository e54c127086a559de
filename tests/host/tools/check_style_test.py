#!/usr/bin/env python3
"""Plants each kind of finding in a tree of its own and compares tools/check_style.py's lines."""
import contextlib
import importlib.util
import io
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROGRAM = ROOT / "tools/check_style.py"
CMAKE = """set_source_files_properties(tessera/x/alone.cc
  PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
"""
# The tools whose numbers docs repeat: 15 minutes.
TOOLS = {"timed.py": 'BUDGETS = {\n    "a": 600,  # of 2\n    "b": 300,\n}\nMOST = 1.5\n',
         "count_path.py": 'LIMITS = {"cold": 50, "warm": 12}\n'}


def load():
    """The check as a module: a process for each tree would take longer than the check."""
    spec = importlib.util.spec_from_file_location("check_style", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CHECK = load()


def run(files):
    """The exit status and the lines of the check in a tree that holds these files alone."""
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder)
        for path, text in ({"src/CMakeLists.txt": CMAKE} | files).items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_bytes(text if isinstance(text, bytes) else text.encode())
        (tree / "tools").mkdir()
        for name, text in TOOLS.items():
            (tree / "tools" / name).write_text(text, encoding="ascii")
        (tree / ".gitignore").write_text("tools\n", encoding="ascii")
        subprocess.run(["git", "init", "-q", tree], check=True)
        CHECK.ROOT, CHECK.findings = tree, []
        with contextlib.redirect_stdout(io.StringIO()) as out:
            status = CHECK.main()
    return status, out.getvalue().splitlines()


def expect(files, *findings):
    """All lines of the check, the last of which counts."""
    want = [*findings, f"style: {len(files) + 2} files, {len(findings)} findings"]
    status, lines = run(files)
    assert lines == want, f"\ngot:    {lines}\nwanted: {want}"
    assert status == (1 if findings else 0), status


def function(head, lines):
    """A definition of so many lines from the one with its name to its last brace."""
    body = lines - 1 - head.count("\n") - 1
    return head + " {\n" + "  f();\n" * body + "}\n"


def unnamed(text, scope="tessera"):
    return f"namespace {scope} {{\nnamespace {{\n{text}\n}}\n}}\n"


# Budgets: each at its limit and one above.
for suffix, folder, limit in ((".cc", "src/tessera/x", 600), (".h", "src/tessera/x", 250),
                              (".hpp", "include/tessera", 250), (".py", "bench", 600),
                              (".h", "src/tessera/device/cpu", 400)):
    file = f"{folder}/long{suffix}"
    expect({file: "// What.\n" * limit})
    expect({file: "// What.\n" * (limit + 1)},
           f"{file}:{limit + 1}: file of {limit + 1} lines, the limit is {limit}")
expect({"cli/a.cc": "//" + "x" * 98 + "\n"})
expect({"cli/a.cc": "\n//" + "x" * 99 + "\n"}, "cli/a.cc:2: line of 101 columns, the limit is 100")

# Functions, however their definitions begin.
for head in ("void f()", "[[gnu::noinline]] void f()", "static int* f(int a,\n         int b)",
             "template <class T>\nvoid f(T)", "X::X() : a_(1),\n         b_(2)",
             "bool X::operator==(const X&) const", "auto f() -> int",
             "namespace a::b {\nvoid f(int) noexcept"):
    line = 2 if head.startswith(("template", "namespace")) else 1
    over = line - 1
    end = "}\n" if head.startswith("namespace") else ""
    expect({"src/tessera/x/a.cc": function(head, 80 + over) + end})
    expect({"src/tessera/x/a.cc": function(head, 81 + over) + end},
           f"src/tessera/x/a.cc:{line}: function of 81 lines, the limit is 80")
MEMBER = "struct X {\n"
expect({"src/tessera/x/a.h": MEMBER + function("int f()", 80) + "};\n"})
expect({"src/tessera/x/a.h": MEMBER + function("int f()", 81) + "};\n"},
       "src/tessera/x/a.h:2: function of 81 lines, the limit is 80")
expect({"tests/host/x/a_test.cc": function("TEST(Suite, Name)", 81)},
       "tests/host/x/a_test.cc:1: function of 81 lines, the limit is 80")
expect({"src/tessera/device/cpu/block.h":
        "// What.\n" + function("void multiply_block()", 84)})

# What clashes in a unity build.
A, B = "src/tessera/x/a.cc", "src/tessera/x/b.cc"
for text in ("struct Row {};", "enum class Row { a };", "using Row = int;",
             "constexpr int Row = 1;", "const std::size_t Row = std::size_t{1} << 2;",
             "static const char* const Row[3] = {};",
             "int Row(int a, const X& b) { return 1; }",
             "template <class T>\nint Row(T) { return 1; }"):
    line = 3 + text.startswith("template")
    expect({A: unnamed(text), B: unnamed(text)},
           f"{B}:{line}: 'Row' is in an unnamed namespace of {A}:{line} too")
clash = f"{B}:3: 'f' is in an unnamed namespace of {A}:3 too"
expect({A: unnamed("void f(int a) {}"), B: unnamed("int f(const int other = 3) { return 1; }")},
       clash)
expect({A: unnamed("void f(std::map<int, X>& a) {}"),
        B: unnamed("void f(std::map<int, X>& b) {}")},
       clash)
expect({A: unnamed("void f(int) {}"), B: unnamed("struct f {};")}, clash)
# Overloads, other scopes, other folders, one file, names with a home, and files compiled alone.
expect({A: unnamed("void f(int a) {}"), B: unnamed("void f(unsigned a) {}")})
expect({A: unnamed("void f(X* a) {}"), B: unnamed("void f(const X* a) {}")})
expect({A: unnamed("void f(int) {}"), B: unnamed("void f(int, int) {}")})
expect({A: unnamed("struct R {};"), B: unnamed("struct R {};", "tessera::x")})
expect({A: unnamed("struct R {};"), "src/tessera/y/b.cc": unnamed("struct R {};")})
expect({A: unnamed("void f(int);\nvoid f(int) {}")})
expect({A: unnamed("struct A { int n; };"), B: unnamed("struct B { int n; };")})
expect({A: unnamed("void f() { int n; }"), B: unnamed("void g() { int n; }")})
expect({A: unnamed("struct R {};"), "src/tessera/x/alone.cc": unnamed("struct R {};")})

# Includes of programs, characters, and words of one machine.
HEADER = '#include "tessera/{}"\n'
PUBLIC = "tessera/tessera.hpp or tessera/tessera.h or tessera/tools.hpp only"
for folder in ("src/tessera/commands", "cli", "peers", "examples"):
    expect({f"{folder}/a.cc": HEADER.format("tessera.hpp")})
    expect({f"{folder}/a.cc": "\n" + HEADER.format("jit/cache.h")},
           f"{folder}/a.cc:2: may include {PUBLIC}, got tessera/jit/cache.h")
expect({"worker/a.cc": HEADER.format("jit/cache.h")})
expect({"cli/a.cc": HEADER.format("commands/console.h")})
expect({"peers/a.cc": HEADER.format("commands/console.h")},
       f"peers/a.cc:1: may include {PUBLIC}, got tessera/commands/console.h")
expect({"docs/a.md": "plain\ncaf\u00e9\n"}, "docs/a.md:2: is not ASCII")
expect({"docs/a.png": b"\x89PNG"})
FOLDER, HOST = "/ho" + "me/someone", "www.example" + ".com"
expect({"docs/a.md": f"/usr/lib/a /tmp/b /no/such\n{FOLDER}\n"},
       f"docs/a.md:2: '{FOLDER[:6]}' does not belong in the project")
expect({"docs/a.md": f"see {HOST}\n"}, f"docs/a.md:1: '{HOST}' does not belong in the project")
expect({"docs/a.md": "see www.w3.org\n"})

# Device headers: a first sentence, and no operation's arguments outside of its folder.
DEVICE = "src/tessera/device/cuda/"
expect({DEVICE + "a.h": "#pragma once\n"},
       DEVICE + "a.h:1: begins with no sentence that says what it is")
expect({DEVICE + "a.h": "// What.\nvoid f(const GemmArguments& g);\n"},
       DEVICE + "a.h:2: may not name GemmArguments, an operation's arguments")
expect({DEVICE + "a.h": "// What.\ntemplate <class Arguments>\nvoid f(const Arguments& g);\n"})
expect({DEVICE + "gemm/a.h": "// What.\nvoid f(const GemmArguments& g);\n"})

# Stages and commands name no operation: neither its word, nor its types, nor their own fields.
SPEC = {"src/tessera/spec/problem.h": """namespace tessera {
enum class Op { gemm, conv };
struct GemmProblem { int layout; int ld_a; };
struct Taps { int radius; int layout; };
using Problem = std::variant<GemmProblem, Taps>;
}
""", "src/tessera/families/facts.h": "namespace tessera {\nstruct TypeWords { int layout; };\n}\n"}
STAGE = "src/tessera/tune/a.cc"
for name, line in (("GemmProblem", "f(GemmProblem{});"), ("Taps", "f(Taps{});"),
                   ("gemm", "f(Op::gemm);"), ("conv", "using namespace conv;"),
                   ("GemmLayout", "GemmLayout f();"), ("parse_gemm_layout", "parse_gemm_layout();"),
                   ("ld_a", "f(p.ld_a);"), ("radius", "f(p->radius);"), ("ld_a", "&P::ld_a;"),
                   ('"gemm"', 'f("gemm");'), ('"conv"', 'f(R"(conv m=1)");'),
                   ('"gemm"', "f('\"', \"gemm_fp32\");")):
    says = f"may not name {name}, which is an operation's: families/family.h knows it"
    for file in (STAGE, "cli/a.h"):
        expect(SPEC | {file: f"// gemm.\n{line}\n"}, f"{file}:2: {says}")
    expect(SPEC | {"src/tessera/families/gemm/a.cc": line + "\n", "worker/a.cc": line + "\n",
                   "cli/matmul_command.cc": line + "\n"})
# Comments, help texts, shared fields, other words, and what the table of exceptions names.
for line in ("// Op::gemm, p.ld_a", "/* Op::gemm\n*/", 'f("tessera bench gemm m=64");',
             "f(p.layout);", 'f("gemms");', "int radius, conversion;", "Convert f(sgemm);"):
    expect(SPEC | {STAGE: line + "\n"})
REGISTRY = "src/tessera/registry/registry.h"
expect(SPEC | {REGISTRY: "X& gemm() { return op(Op::gemm); }\n"})
expect(SPEC | {REGISTRY: "X& conv();\n"},
       f"{REGISTRY}:1: may not name conv, which is an operation's: families/family.h knows it")

# Sentences that begin with "Of ", written with @ here, because this file is checked too.
def of(path, line, *findings):
    expect({path: "\n" + line.replace("@", "Of") + "\n"}, *findings)


HIDES = "begins a sentence with 'Of', which hides its subject"
for line in ("// @ a row.", "int a;  // @ a row.", "/* @ a row. */", "// A row. @ a row.",
             " * @ a row."):
    of("cli/a.h", line, f"cli/a.h:2: {HIDES}")
for line in ('"""@ a row."""', "# @ a row.", "    @ weak symbols some."):
    of("bench/a.py", line, f"bench/a.py:2: {HIDES}")
for line in ("@ a row.", "- @ a row.", "A row. @ a row.", "Rows: @ `a`."):
    of("docs/a.md", line, f"docs/a.md:2: {HIDES}")
of("dev", "# @ a row.", f"dev:2: {HIDES}")
for line in ("// A row of rows.", "// @Row. @ten.", "void @(int);", 'f("a. @ b");'):
    of("cli/a.h", line)

# Markdown that clang-format tore.
UNDATED = "# A\n\n{}\n\n| b |\n| --- |\n\n# C\n\nWords.\n"
P = "docs/performance/p.md"
expect({P: UNDATED.format("Written: 2026-11-28, 1234567."), "docs/a.md": UNDATED.format("")})
expect({P: UNDATED.format("Recorded: yesterday.")},
       f"{P}:1: has a table without 'Written: DATE, COMMIT.' or 'Recorded:'")
for line, torn in (("#measure", "#measure"), ("here and in `tune /`.", "`tune /`"),
                   ("Read first : `child.h`.", "first : `")):
    expect({"docs/a.md": f"\n{line}\n"},
           f"docs/a.md:2: '{torn}' is torn, as clang-format leaves markdown")
expect({"docs/a.md": "A sentence.\n    Next.\n"},
       "docs/a.md:2: is indented amid a paragraph, as clang-format leaves markdown")
expect({"docs/a.md": "# A\n\n    #include <a>\n    b\n\n```\n#include <a>\n```\n"})
expect({"docs/a.md": "- A list\n    of one\n\n    # with code\n"})

# Long lines of docs. Rows of tables, code and commands may be longer.
LONG = "x" * 300
expect({"docs/a.md": "x" * 160 + f"\n| {LONG} |\n`{LONG}`\n\n    {LONG}\n\n```\n{LONG}\n```\n"})
expect({"docs/a.md": "\n" + "x" * 161 + "\n"},
       "docs/a.md:2: line of 161 columns, the limit is 160")

# Numbers that a tool knows.
TEST = "    ./dev test     # 2 cores: {} minutes\n"
expect({"CONTRIBUTING.md": TEST.format(15)})
expect({"CONTRIBUTING.md": "\n" + TEST.format(25)},
       "CONTRIBUTING.md:2: says 25 minutes, tools/timed.py 15")
for path, line in (("README.md", TEST.format(15)), ("dev", "  test    build, test: 15 minutes\n"),
                   ("docs/a.md", "`.ci/run` takes 48 minutes.\n")):
    expect({path: line}, f"{path}:1: CONTRIBUTING.md alone says how many minutes that takes")
expect({"dev": "  test-torch  2 minutes\n", "docs/a.md": "`./dev test --all`: 30 minutes\n"})
expect({"docs/a.md": "Other 99.\n\n`tools/count_path.py` says 12\nand 50.\n"})
expect({"docs/a.md": "\n\n`tools/count_path.py` says 27\nand 50.\n"},
       "docs/a.md:3: says 27, which tools/count_path.py does not know")

# Several findings, in the order of the checks.
expect({A: unnamed("struct R {};"), B: unnamed("struct R {};") + "//" + "x" * 99 + "\n"},
       f"{B}:6: line of 101 columns, the limit is 100",
       f"{B}:3: 'R' is in an unnamed namespace of {A}:3 too")
# The program itself, which looks at the tree that it lies in.
with tempfile.TemporaryDirectory() as whole:
    for place in ("tools", "src"):
        (pathlib.Path(whole) / place).mkdir()
    (pathlib.Path(whole) / "src/CMakeLists.txt").write_text(CMAKE, encoding="ascii")
    copied = shutil.copy(PROGRAM, pathlib.Path(whole) / "tools")
    (pathlib.Path(whole) / "cli.cc").write_text("//" + "x" * 99 + "\n", encoding="ascii")
    subprocess.run(["git", "init", "-q", whole], check=True)
    answer = subprocess.run([sys.executable, copied], capture_output=True, text=True, check=False)
    assert answer.stdout.startswith("cli.cc:1: line of 101 columns"), answer.stdout + answer.stderr
    assert answer.returncode == 1 and answer.stderr == "", answer.stderr
print("check_style: every planted finding was found")
