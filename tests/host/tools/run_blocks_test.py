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

    def test_shapes_are_explained_and_other_commands_run(self):
        line = "tessera bench conv --shapes resnet50 --set n=1 --dtype bf16 --peers cudnn"
        self.assertEqual(run_blocks.explained(line),
                         ["tessera explain --shapes resnet50 --set n=1 --dtype bf16 >/dev/null"])
        self.assertEqual(run_blocks.explained("tessera doctor"), ["tessera doctor"])
        self.assertEqual(run_blocks.explained("export A=1"), [])

    def test_what_takes_a_words_place_must_be_there(self):
        small, missing = block("shell", "tessera tune --budget 30m\n", "with",
                               "30m => 2s; models => one.txt\necho a >one.txt").smaller()
        self.assertEqual(small.text, "tessera tune --budget 2s\n")
        self.assertEqual(small.before(), "echo a >one.txt")
        self.assertEqual(missing, ["the block has no 'models'"])

    def test_a_block_runs_where_its_modules_are(self):
        detail = "{}, tools/run_blocks.py\nx = 1"
        here = block("python", "print(x)\n", "needs", detail.format("json"))
        self.assertEqual((run_blocks.left_out(here, {}), here.before()), ("", "x = 1"))
        elsewhere = here._replace(detail=detail.format("json no_such_module"))
        self.assertEqual(run_blocks.left_out(elsewhere, {}), "tested by tools/run_blocks.py")
        wrong = here._replace(detail="json, tools/no_such_file.py")
        self.assertEqual(run_blocks.left_out(wrong, {}), "no file tools/no_such_file.py")

    def test_a_reason_that_nobody_knows_is_a_failure(self):
        counts = {"left out": 0, "failed": 0}
        for reason in ("it needs a GPU", "it rains"):
            run_blocks.run_block(None, block("shell", "x\n", "no", reason), counts, {})
        self.assertEqual(counts, {"left out": 1, "failed": 1})

    def test_unknown_commands_and_options_are_named(self):
        self.assertEqual(run_blocks.unknown_words("./dev build   # all"), [])
        self.assertEqual(len(run_blocks.unknown_words("./dev bulid")), 1)
        words = ["python3", "bench/drawn_gemm.py", "--seed", "1"]
        self.assertEqual(run_blocks.unknown_options(words), [])
        self.assertEqual(len(run_blocks.unknown_options([*words, "--sead"])), 1)


if __name__ == "__main__":
    unittest.main()
