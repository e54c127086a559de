"""What is accepted and changes nothing tells its user, once, and is in the README's list."""
import re
import unittest
import warnings

from support import COMPAT, Case

from ctypes_utils import DispatcherLib, KernelConfig, setup_gemm_dispatcher
from fmha_utils import (FmhaDispatcherLib, FmhaKernelConfig, fmha_compile_flags,
                        setup_multiple_fmha_dispatchers, validate_fmha_config)
from grouped_conv_utils import (GroupedConvDispatcherLib, GroupedConvKernelConfig,
                                GroupedConvProblem)
from tessera_ck import hints
from tessera_ck.codegen_runner import CodegenRunner


def other(value):
    return not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else "fp16"


class Hints(Case):
    def setUp(self):
        super().setUp()
        hints._told.clear()

    def told(self, work):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            work()
        return [str(each.message) for each in caught]

    def test_fields_of_configurations(self):
        for make, lib in ((KernelConfig, DispatcherLib), (FmhaKernelConfig, FmhaDispatcherLib),
                          (GroupedConvKernelConfig, GroupedConvDispatcherLib)):
            self.assertEqual(self.told(lambda: lib(make())), [])
            self.assertGreater(len(make.IGNORED), 5)
            for name in make.IGNORED:
                config = make(**{name: other(getattr(make(), name))})
                (sentence,) = self.told(lambda: lib(config))
                self.assertIn(f"{name}={getattr(config, name)} changes nothing: ", sentence)
                self.assertEqual(self.told(lambda: lib(config)), [])
                self.assertIn(sentence, lib(config).wish.corrections)
            hints._told.clear()

    def test_corrections(self):
        config = FmhaKernelConfig(block_per_cu=2)
        self.told(lambda: self.assertRegex(" ".join(validate_fmha_config(config).warnings),
                                           "block_per_cu=2 changes nothing"))
        found = []
        self.told(lambda: found.append(setup_gemm_dispatcher(
            KernelConfig(pad_m=False), verbose=False, auto_rebuild=False)))
        self.assertRegex(" ".join(found[0].corrections), "pad_m=False changes nothing")

    def test_sums_of_integers(self):
        config = KernelConfig("int8", "int8", "int32", "int32")
        self.assertEqual(self.told(lambda: DispatcherLib(config)), [])

    def test_arguments(self):
        for work, name in ((lambda: fmha_compile_flags(hipcc="/opt/rocm/bin/hipcc"), "hipcc"),
                           (lambda: DispatcherLib.auto(recompile=True, verbose=False), "recompile"),
                           (lambda: GroupedConvProblem(split_k=4), "split_k"),
                           (lambda: CodegenRunner("a.py"), "codegen_path"),
                           (lambda: setup_multiple_fmha_dispatchers([], executor=self),
                            "executor")):
            self.assertEqual([each.partition(" changes nothing: ")[0] for each in self.told(work)],
                             [name])
            self.assertEqual(self.told(work), [])
        self.assertEqual(self.told(fmha_compile_flags), [])

    def test_the_list_has_them_all(self):
        text = (COMPAT / "README.md").read_text()
        listed = text.partition("## What is accepted and changes nothing")[2].partition("\n## ")[0]
        named = set(re.findall(r"`(\w+\*?)(?:\(\))?`", listed))
        wanted = {*KernelConfig.IGNORED, *GroupedConvKernelConfig.IGNORED,
                  *FmhaKernelConfig.IGNORED, *hints.ARGUMENTS}
        for header in (COMPAT / "include").rglob("*.hpp"):
            for words in re.findall(r'(?:changes_nothing|hint)\(\s*"([^"]+)"', header.read_text()):
                wanted |= set(words.split(", "))
        missing = {name for name in wanted if name not in named and
                   not re.match(r"(wave|warp)_[mnk]\d$", name)}
        self.assertEqual(missing, set())


if __name__ == "__main__":
    unittest.main()
