#!/usr/bin/env python3
"""Checks budgets, public includes, names that clash, operations' names, ASCII, foreign words, and
what comments and docs can be told by their form: torn markdown, "Of ..." and numbers that are stale
or without a date.

Prints one line per finding and exits 1 if there is any. Takes no arguments.
"""
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CPP = {".h", ".hpp", ".cc", ".cpp"}
CODE = CPP | {".py", ".cmake"}
MAX_FILE, MAX_HEADER, MAX_DEVICE_FILE = 600, 250, 400
MAX_FUNCTION, MAX_LINE, MAX_DOC_LINE = 80, 100, 160
# Headers that may be longer, each with the reason.
LONG_HEADERS = {
    # Bindings of other languages read the C ABI in one file.
    "include/tessera/tessera.h": 480,
}
PUBLIC_HEADERS = ("tessera/tessera.hpp", "tessera/tessera.h", "tessera/tools.hpp")
COMMANDS = "src/tessera/commands/"  # which the command line shares

# Text that is right on one machine only: absolute paths that not every system has, and host names.
# Tests use made-up paths; the one allowed host belongs to an XML namespace.
SYSTEM = "usr|etc|tmp|dev|proc|sys|opt|lib|lib64|bin|var|run"
MADE_UP = "no|nowhere|elsewhere"
FOREIGN = re.compile(rf"(?<![\w.)}}*$>/-])/(?!(?:{SYSTEM}|{MADE_UP})/)[a-z][\w.-]*/"
                     r"|(?<![\w.-])(?!www\.w3\.org\b)(?:[a-z0-9-]+\.)+(?:org|com|net|io)\b")

# The names that ctags gives to unnamed namespaces, and words that end a type and name no parameter.
UNNAMED = re.compile(r"__anon\w+")
CONSTANT = re.compile(r"(?:inline |static )*const(?:expr|init)? \w[^=({]*[ *&](\w+)(?:\[[^]]*\])* ?"
                      r"[={]")
BUILT_IN = {"bool", "char", "double", "float", "int", "long", "short", "unsigned", "auto", "const"}

# Functions that may be longer, each with the reason.
LONG_FUNCTIONS = {
    # Moving any of its loops into a function changes the machine code that GCC makes of it.
    ("src/tessera/device/cpu/block.h", "multiply_block"),
}

# Folders that know operations by the table of families/family.h alone.
STAGES = ("base|targets|jit|runtime|registry|select|learn|dispatch|measure|tune|train|commands|"
          "c_api")
FAMILY_BLIND = re.compile(rf"(?:src/tessera/(?:{STAGES})|cli)/")
# Names of operations that their code may hold nevertheless, each with the reason. None: all.
NAMES_ALLOWED = {
    # The command multiplies the matrices of two files, whatever operations there are.
    "cli/matmul_command.cc": None,
    # KernelSetBuilder::gemm() is the public short spelling of op(Op::gemm).
    "src/tessera/registry/registry.h": {"gemm"},
}
COMMENT_OR_TEXT = re.compile(r"//[^\n]*|/\*.*?\*/|'(?:\\.|[^'\\\n])'|R\"\((?P<raw>.*?)\)\"|"
                             r"\"(?P<text>(?:\\.|[^\"\\\n])*)\"", re.DOTALL)

# A sentence that begins with "Of " hides its subject: "Of a row." says nothing to a newcomer.
OF_COMMENT = re.compile(r"(?:(?:^|\s)(?://|#)|/\*|^ \*|\"\"\")\s*Of\s"
                        r"|(?:(?:^|\s)(?://|#) |^ \* ).*[.!?:] Of [a-z0-9`(]|^\s*Of [a-z]")
OF_DOC = re.compile(r"(?:^|[.!?:] |^\s*(?:[-*]|#+|\|) )Of [a-z0-9`(]")
# Folders whose comments are not held to this rule.
OF_ALLOWED = ("compat/", "python/", "src/tessera/families/gemm/", "src/tessera/families/tile/")
# What clang-format leaves of markdown: "#measure", "`tune /`", "first : `child.h`".
TORN = re.compile(r"^#+[^#\s].*|`[\w.]+ /`|\w+ : `")
# When figures were measured, and at which commit.
DATED = re.compile(r"(?:Written|Recorded): \d{4}-\d\d-\d\d, ")
# CONTRIBUTING.md alone says how many minutes `./dev test` takes, as tools/timed.py budgets them.
MINUTES_PLACE = "CONTRIBUTING.md"
MINUTES = re.compile(r"(?:\./dev test(?! --|-)|\.ci/run|^  test ).*?\b(\d+) minutes")

findings = []


def report(path, line, text):
    findings.append(f"{path}:{line}: {text}")


def check_public_only(path, lines):
    """The commands, the peers and the examples know tessera.hpp and tools.hpp only."""
    if not path.startswith((COMMANDS, "cli/", "peers/", "examples/")):
        return
    knows_commands = path.startswith((COMMANDS, "cli/"))
    for number, line in enumerate(lines, 1):
        match = re.match(r'#include [<"](tessera/[^">]+)[">]', line)
        if match and knows_commands and match.group(1).startswith("tessera/commands/"):
            continue
        if match and match.group(1) not in PUBLIC_HEADERS:
            report(path, number,
                   f"may include {' or '.join(PUBLIC_HEADERS)} only, got {match.group(1)}")


def check_device(path, lines):
    """Headers that operations share name no operation's arguments, and begin with a comment."""
    if not path.startswith("src/tessera/device/"):
        return
    if not lines[0].startswith("// "):
        report(path, 1, "begins with no sentence that says what it is")
    if not re.fullmatch(r"src/tessera/device/(cpu|cuda|hip)/[^/]+", path):
        return
    for number, line in enumerate(lines, 1):
        match = re.search(r"\b\w+Arguments\b", line)
        if match:
            report(path, number, f"may not name {match.group(0)}, an operation's arguments")


def read_tags(paths):
    """The names that universal-ctags finds in C++ files: dicts with path, line, end and more."""
    command = ["ctags", "--language-force=C++", "--kinds-C++=+p-l-z", "--fields=+neKSs", "-L", "-",
               "--output-format=json", "-f", "-"]
    try:
        found = subprocess.run(command, input="\n".join(paths), cwd=ROOT, check=True,
                               capture_output=True, text=True).stdout
    except (FileNotFoundError, subprocess.CalledProcessError):
        sys.exit("style: needs ctags, the universal one with JSON; './dev setup' installs it")
    return [json.loads(line) for line in found.splitlines()]


def check_functions(tags):
    """A function's lines count from the one that holds its name to the one of its last brace."""
    for tag in tags:
        lines = tag.get("end", 0) - tag["line"] + 1
        if (tag["kind"] == "function" and lines > MAX_FUNCTION and
                (tag["path"], tag["name"]) not in LONG_FUNCTIONS):
            report(tag["path"], tag["line"],
                   f"function of {lines} lines, the limit is {MAX_FUNCTION}")


def parameter_types(signature):
    """The types of a signature's parameters, without names and default values."""
    inner = signature[1:signature.rindex(")")]
    while re.search(r"<[^<>]*,[^<>]*>", inner):  # commas of templates do not separate parameters
        inner = re.sub(r"<([^<>]*),([^<>]*)>", r"<\1;\2>", inner)
    types = []
    for parameter in inner.split(","):
        words = re.findall(r"[\w:]+|[^\w\s:]", parameter.partition("=")[0])
        if len(words) > 1 and re.fullmatch(r"[a-z_]\w*", words[-1]) and words[-1] not in BUILT_IN:
            words.pop()
        if words and words[0] == "const" and words[-1] not in "&*":
            words.pop(0)
        types.append(" ".join(words))
    return ", ".join(types)


def compiled_alone():
    """The files that CMake keeps out of unity builds."""
    text = (ROOT / "src/CMakeLists.txt").read_text(encoding="ascii")
    calls = re.findall(r"set_source_files_properties\(([^)]*)\)", text)
    return {f"src/{word}" for call in calls if "SKIP_UNITY_BUILD_INCLUSION" in call
            for word in call.split()}


def unnamed_constants(tags):
    """Constants of unnamed namespaces as tags, because ctags misses some that contain braces."""
    found = []
    for space in tags:
        if space["kind"] != "namespace" or not UNNAMED.fullmatch(space["name"]):
            continue
        lines = (ROOT / space["path"]).read_text(encoding="ascii").split("\n")
        scope = "::".join(filter(None, (space.get("scope"), space["name"])))
        for number in range(space["line"], space["end"]):
            match = CONSTANT.match(lines[number])
            if match:
                found.append({"path": space["path"], "line": number + 1, "name": match.group(1),
                              "kind": "variable", "scope": scope, "scopeKind": "namespace"})
    return found


def check_unnamed(tags):
    """A unity build merges the unnamed namespaces of a folder's files, so their names must differ.

    Functions of one name may differ in the types of their parameters.
    """
    alone, seen = compiled_alone(), {}
    for tag in sorted(tags + unnamed_constants(tags), key=lambda tag: (tag["path"], tag["line"])):
        path, scope = tag["path"], tag.get("scope", "")
        if (tag.get("scopeKind") != "namespace" or not UNNAMED.search(scope) or path in alone or
                not path.endswith(".cc") or UNNAMED.fullmatch(tag["name"])):
            continue
        types = None
        if tag["kind"] in ("function", "prototype"):
            types = parameter_types(tag["signature"])
        key = path.rpartition("/")[0], UNNAMED.sub("", scope), tag["name"]
        others = seen.setdefault(key, [])
        if (path, tag["line"], types) in others:
            continue
        for other, line, other_types in others:
            if other != path and (types is None or other_types in (None, types)):
                report(path, tag["line"],
                       f"'{tag['name']}' is in an unnamed namespace of {other}:{line} too")
                break
        others.append((path, tag["line"], types))


def names_of_operations(tags):
    """What says an operation: its words, the types of its structs, and the fields of these alone.

    A field is shared when another struct of spec/, families/, a stage or cli/ has one of that name.
    """
    own = {tag["name"] for tag in tags
           if tag["kind"] == "member" and FAMILY_BLIND.match(tag["path"])}
    tags = [tag for tag in tags
            if re.fullmatch(r"src/tessera/(spec|families)/\w+\.h", tag["path"])]
    words = {tag["name"] for tag in tags
             if tag["kind"] == "enumerator" and tag["scope"] == "tessera::Op"}
    types = set()
    for tag in tags:
        if tag["kind"] == "typedef" and tag["name"] in ("Problem", "Signature", "Operands"):
            types.update(re.findall(r"\w+", tag["typeref"].partition("variant<")[2]))
    fields = {True: set(), False: set()}
    for tag in tags:
        if tag["kind"] == "member":
            fields[tag["scope"].rpartition("::")[2] in types].add(tag["name"])
    return words, types, fields[True] - fields[False] - own


def parts_of(identifier):
    """Its words in small letters: GemmLayout and gemm_layout have two."""
    return [part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", identifier)]


def check_operations(path, operations):
    """Code of the stages and commands names no operation, comments and help texts may.

    A text that is or begins with an operation's word is the operation, a problem or a kernel.
    """
    words, types, fields = operations
    text = (ROOT / path).read_text(encoding="ascii")
    allowed = NAMES_ALLOWED.get(path, set())
    found = []
    for match in COMMENT_OR_TEXT.finditer(text):
        literal = match.group("raw") or match.group("text") or ""
        word = re.match(r"([a-z]+)(?:[ _]|$)", literal)
        if word and word.group(1) in words:
            found.append((match.start(), f'"{word.group(1)}"'))
    code = COMMENT_OR_TEXT.sub(lambda match: re.sub(r"[^\n]", " ", match.group(0)), text)
    for match in re.finditer(r"(\.|->|::)?\b([A-Za-z_]\w*)", code):
        is_field = match.group(1) is not None and match.group(2) in fields
        if is_field or match.group(2) in types or words.intersection(parts_of(match.group(2))):
            found.append((match.start(2), match.group(2)))
    for at, name in sorted(found):
        if allowed is not None and name not in allowed:
            report(path, text[:at].count("\n") + 1,
                   f"may not name {name}, which is an operation's: families/family.h knows it")


def numbers_of(tool, table):
    """The whole numbers of a table of constants in a tool."""
    text = (ROOT / tool).read_text(encoding="ascii")
    body = re.search(rf"^{table} = (\{{.*?\}})\n(?=\S|\n|$)", text, re.DOTALL | re.MULTILINE)[1]
    return [int(number) for number in re.findall(r": *(\d+)", re.sub(r"#.*", "", body))]


def check_sentences(path, lines):
    """No comment and no sentence of docs begins with "Of "."""
    pattern = OF_DOC if path.endswith(".md") else OF_COMMENT
    for number, line in enumerate(lines, 1):
        if pattern.search(line) and not path.startswith(OF_ALLOWED):
            report(path, number, "begins a sentence with 'Of', which hides its subject")


def check_torn(path, number, line, is_amid):
    """Markdown as a person writes it, outside of code. is_amid: in a paragraph that is no list."""
    match = TORN.search(line)
    if match:
        report(path, number, f"'{match.group(0)}' is torn, as clang-format leaves markdown")
    elif is_amid and re.match(r" {4,}\S", line):
        report(path, number, "is indented amid a paragraph, as clang-format leaves markdown")


def check_markdown(path, lines):
    """Torn lines, and long ones; rows of tables, code and commands have one line each."""
    is_fenced = is_code = is_list = False
    before = ""
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("```"):
            is_fenced = not is_fenced
        is_code = line.startswith("    ") and (is_code or before == "")
        if re.match(r"\s*(?:[-*]|\d+\.) ", line):
            is_list = True
        elif before == "" and line and not line.startswith(" "):
            is_list = False
        if not is_fenced and not (is_code and not is_list):
            check_torn(path, number, line, before != "" and not is_list)
        is_one_word = re.fullmatch(r"\s*(?:\|.*|`[^`]*`)", line)
        if (len(line) > MAX_DOC_LINE and not (is_fenced or is_code or is_one_word) and
                not path.startswith("compat/")):
            report(path, number, f"line of {len(line)} columns, the limit is {MAX_DOC_LINE}")
        before = line


def check_dates(path, lines):
    """Each section of measurements with a table says when, and at which commit, it was written."""
    heading, is_dated, has_table = 1, True, False
    for number, line in enumerate([*lines, "# end"], 1):
        if line.startswith("#"):
            if has_table and not is_dated:
                report(path, heading, "has a table without 'Written: DATE, COMMIT.' or 'Recorded:'")
            heading, is_dated, has_table = number, False, False
        is_dated = is_dated or DATED.search(line) is not None
        has_table = has_table or line.startswith("|")


def check_numbers(path, lines):
    """Numbers that a tool knows are said in one place, and are the tool's."""
    minutes = round(sum(numbers_of("tools/timed.py", "BUDGETS")) / 60)
    for number, line in enumerate(lines, 1):
        match = MINUTES.search(line)
        if match and path != MINUTES_PLACE:
            report(path, number, f"{MINUTES_PLACE} alone says how many minutes that takes")
        elif match and int(match.group(1)) != minutes:
            report(path, number, f"says {match.group(1)} minutes, tools/timed.py {minutes}")
    limits, first = numbers_of("tools/count_path.py", "LIMITS"), 1
    for paragraph in "\n".join(lines).split("\n\n"):
        if "count_path.py" in paragraph:
            for word in re.findall(r"(?<![\w.])\d+(?![\w.]\w)", paragraph):
                if int(word) not in limits:
                    report(path, first, f"says {word}, which tools/count_path.py does not know")
        first += paragraph.count("\n") + 2


def check_file(path):
    text = (ROOT / path).read_bytes()
    name = pathlib.PurePosixPath(path)
    if name.suffix in (".png", ".gz", ".npy", ".parquet"):
        return
    try:
        lines = text.decode("ascii").split("\n")
    except UnicodeDecodeError as error:
        report(path, text[:error.start].count(b"\n") + 1, "is not ASCII")
        return
    for number, line in enumerate(lines if name.name != ".gitignore" else [], 1):
        match = FOREIGN.search(line)
        if match:
            report(path, number, f"'{match.group(0)}' does not belong in the project")
    if name.suffix in CODE | {".c", ".md"} or path == "dev":
        check_sentences(path, lines)
    if name.suffix == ".md" or path == "dev":
        check_numbers(path, lines)
    if name.suffix == ".md":
        check_markdown(path, lines)
    if path.startswith("docs/performance/"):
        check_dates(path, lines)
    if name.suffix not in CODE:
        return
    limit = MAX_FILE
    if name.suffix in (".h", ".hpp"):
        limit = MAX_DEVICE_FILE if path.startswith("src/tessera/device/") else MAX_HEADER
        limit = LONG_HEADERS.get(path, limit)
    count = len(lines) - 1
    if count > limit:
        report(path, count, f"file of {count} lines, the limit is {limit}")
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_LINE:
            report(path, number, f"line of {len(line)} columns, the limit is {MAX_LINE}")
    if name.suffix in CPP:
        check_public_only(path, lines)
        check_device(path, lines)


def main():
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"],
                            check=True, capture_output=True, text=True).stdout.split("\n")
    paths = [p for p in listed if p and (ROOT / p).is_file()]
    for path in paths:
        check_file(path)
    tags = read_tags([path for path in paths if pathlib.PurePosixPath(path).suffix in CPP])
    check_functions(tags)
    check_unnamed(tags)
    operations = names_of_operations(tags)
    for path in paths:
        if FAMILY_BLIND.match(path) and pathlib.PurePosixPath(path).suffix in CPP:
            check_operations(path, operations)
    for finding in findings:
        print(finding)
    print(f"style: {len(paths)} files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
