#!/usr/bin/env python3
"""Plants exports and headers and looks what tools/check_exports.py says: COMPILER."""
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
COMPILER = sys.argv[1]
sys.path.insert(0, str(ROOT / "tools"))
import check_exports  # noqa: E402

SOURCE = """
#include <string_view>
#include <vector>
#pragma GCC visibility push(default)
namespace tessera {
class Ranker { public: virtual ~Ranker() = default; struct [[gnu::visibility("hidden")]] State; };
void run(std::string_view);
inline int twice(int x) { return x + x; }
}
extern "C" int tessera_run();
#pragma GCC visibility pop
namespace tessera {
void run(std::string_view) {}
struct Ranker::State { void run(); };
void Ranker::State::run() { std::vector<Ranker>().resize(twice(1)); }
void internal() {}
}
extern "C" int tessera_run() { return 0; }
"""
DECLARED = {"tessera::run(std::string_view)", "typeinfo for tessera::Ranker", "tessera_run"}

with tempfile.TemporaryDirectory() as folder:
    source, library = pathlib.Path(folder, "planted.cc"), pathlib.Path(folder, "planted.so")
    source.write_text(SOURCE, encoding="ascii")
    command = [COMPILER, "-std=c++20", "-O0", "-fPIC", "-shared", "-fvisibility=hidden",
               "-fvisibility-inlines-hidden", f"-I{ROOT}/src", source, "-o", library]
    subprocess.run(command, check=True)
    names = check_exports.exported(library)
assert names == DECLARED, names
assert check_exports.compare(names, names) == []
got = check_exports.compare(names, names - {"tessera_run"} | {"tessera::gone()"})
assert got == ["tessera_run: is exported, but tests/golden/exported_symbols.txt does not list it",
               "tessera::gone(): tests/golden/exported_symbols.txt lists it, but it is not "
               "exported"], got


def findings(**headers):
    """The check's sentences on a tree of these headers; `user` comes with tessera.hpp."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "include/tessera").mkdir(parents=True)
        (root / "src/tessera/base").mkdir(parents=True)
        (root / "include/tessera/tessera.hpp").write_text('#include "tessera/base/user.h"\n')
        for name, text in headers.items():
            (root / f"src/tessera/base/{name}.h").write_text(text)
        return check_exports.check_headers(root)


HIDDEN = "namespace tessera {\n}\n"
PUBLIC = f"#pragma GCC visibility push(default)\n{HIDDEN}#pragma GCC visibility pop\n"
WITH_OTHER = '#include "tessera/base/other.h"\n'
assert findings(user=PUBLIC, other=HIDDEN) == []
assert findings(user=WITH_OTHER + PUBLIC, other=PUBLIC) == []
FORGOTTEN = ("src/tessera/base/{}.h: tessera.hpp brings it along, so that its namespace stands "
             "between '#pragma GCC visibility push(default)' and '#pragma GCC visibility pop'")
assert findings(user=HIDDEN, other=HIDDEN) == [FORGOTTEN.format("user")]
assert findings(user=WITH_OTHER + PUBLIC, other="namespace tessera::jit {\n") == [
    FORGOTTEN.format("other")]
assert findings(user=PUBLIC, other=PUBLIC) == [
    "src/tessera/base/other.h: tessera.hpp does not bring it along, so that it changes no "
    "visibility"]

PLANTED = {"tessera/base/user.h", "tessera/tessera.hpp"}
assert check_exports.compare_headers(PLANTED, PLANTED) == []
got = check_exports.compare_headers(PLANTED, PLANTED - {"tessera/base/user.h"} | {"tessera/gone.h"})
assert got == ["tessera/base/user.h: tessera.hpp brings it along, but "
               "tests/golden/public_headers.txt does not list it",
               "tessera/gone.h: tests/golden/public_headers.txt lists it, but tessera.hpp does not "
               "bring it along"], got
headers = check_exports.listed_headers(ROOT)
assert "tessera/families/operations.h" in headers and "tessera/tessera.hpp" in headers, headers
assert not headers & {"tessera/families/family.h", "tessera/families/launch.h"}, headers
print("check_exports: every planted export and header was found")
