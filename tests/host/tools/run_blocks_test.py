"""Which blocks tools/run_blocks.py finds in a page, and what it makes of them."""
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))
import run_blocks  # noqa: E402


def block(language, text, directive="", detail=""):
    return run_blocks.Block("page", 1, language, text, directive, detail)


class Blocks(unittest.TestCase):
    def test_every_shell_block_of_the_readme_is_found(self):
        found = list(run_blocks.blocks_of(ROOT / "README.md"))
        lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
        for one in found:
            self.assertEqual(lines[one.line - 1].strip(), one.text.splitlines()[0].strip(), one)
        commands = [line for line in lines if line.startswith("    tessera ")]
        texts = "\n".join(one.text for one in found if one.language == "shell")
        self.assertGreater(len(commands), 5)
        for command in commands:
            self.assertIn(command.strip(), texts)

    def test_a_formula_is_no_code(self):
        self.assertEqual(run_blocks.language_of("softmax(x) = exp(x) / sum\n"), "")
        self.assertEqual(run_blocks.language_of("tessera doctor\n./dev build\n"), "shell")
        self.assertEqual(run_blocks.language_of("d = tessera.Dispatcher()\n"), "python")

    def test_statements_go_into_main_behind_what_runs_before(self):
        text = run_blocks.wrapped(block("c", "#include <math.h>\nf(&x);\n", "before", "int x;"))
        self.assertLess(text.index("#include <math.h>"), text.index("main"))
        self.assertLess(text.index("int x;"), text.index("f(&x);"))

    def test_a_run_becomes_an_explanation_with_its_target(self):
        line = "tessera run gemm m=8 n=8 k=8 --target sm90a --verify"
        self.assertEqual(run_blocks.explained(line),
                         ["tessera explain gemm m=8 n=8 k=8 --target sm90a >/dev/null"])

    def test_unknown_commands_and_options_are_named(self):
        self.assertEqual(run_blocks.unknown_words("./dev build   # all"), [])
        self.assertEqual(len(run_blocks.unknown_words("./dev bulid")), 1)
        words = ["python3", "bench/drawn_gemm.py", "--seed", "1"]
        self.assertEqual(run_blocks.unknown_options(words), [])
        self.assertEqual(len(run_blocks.unknown_options([*words, "--sead"])), 1)


if __name__ == "__main__":
    unittest.main()
