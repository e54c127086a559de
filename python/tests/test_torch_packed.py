"""Packed weights of tessera.torch.Linear that change.

Where PyTorch is not installed the tests are skipped, unless TESSERA_TEST_TORCH=1 asks for them.
TESSERA_TEST_SEED=N repeats a run.
"""
import copy
import os
import pickle
import time
import unittest
from unittest import mock

WANTED = os.environ.get("TESSERA_TEST_TORCH") == "1"
try:
    import torch
    import torch.nn.functional as functional
    from torch import nn
except ImportError:
    if WANTED:
        raise
    raise unittest.SkipTest("PyTorch is not installed; './dev setup --torch' installs it")

import torch_blocks
from torch.multiprocessing.reductions import StorageWeakRef
from torch_blocks import NEAR, products

import tessera
import tessera.torch

SEED = int(os.environ.get("TESSERA_TEST_SEED", time.time_ns() % 10**6))


def setUpModule():
    torch.set_num_threads(1)  # for products this small threads only wait
    print(f"test_torch_packed: TESSERA_TEST_SEED={SEED}, PyTorch {torch.__version__}")


class PackedWeights(unittest.TestCase):
    """A packed weight is used as long as the weight is what it was."""

    ROWS = (1, 2, 16, 256)

    def setUp(self):
        torch.manual_seed(SEED)
        self.layer = tessera.torch.Linear(96, 160).requires_grad_(False)
        self.layer.pack()

    def assert_right(self, layer, call=None):
        call = layer if call is None else call
        for _ in range(3):
            for rows in self.ROWS:
                x = torch.randn(rows, 96)
                torch.testing.assert_close(
                    call(x), functional.linear(x, layer.weight, layer.bias), **NEAR)

    def changes(self):
        """(what changes the weight, how)"""
        layer, other = self.layer, torch.randn(160, 96) / 10

        def zero():
            layer.weight.zero_()

        def other_memory():
            layer.weight.data = other.clone()

        def again():  # the allocator may give the memory of the one before
            layer.weight.data = other.clone() * 2
            layer.weight.data = other.clone() * 3

        def copied():
            layer.weight.copy_(other)

        def parameter():
            layer.weight = nn.Parameter(other.clone(), requires_grad=False)

        def same_memory():
            layer.weight = nn.Parameter(layer.weight.data, requires_grad=False)
            layer.weight.mul_(2)

        def inference():
            with torch.inference_mode():
                layer.weight.mul_(2)

        def step():
            layer.requires_grad_(True)
            layer(torch.randn(4, 96)).square().sum().backward()
            torch.optim.SGD(layer.parameters(), 0.1).step()
            layer.requires_grad_(False)

        def through_data():
            layer.weight.data.mul_(2)

        def merged():
            layer.weight.data += other

        def through_numpy():
            layer.weight.numpy()[:] = other.numpy()

        def view():
            layer.weight[3:5].fill_(7)

        def loaded():
            layer.load_state_dict({"weight": other, "bias": torch.randn(160)})

        def assigned():
            layer.load_state_dict({"weight": other.clone(), "bias": torch.randn(160)}, assign=True)
            layer.requires_grad_(False)

        def turned():
            tall = torch.randn(96, 160) / 10
            layer.weight.data = tall.T

        def swapped():
            torch.utils.swap_tensors(layer.weight,
                                     nn.Parameter(other.clone(), requires_grad=False))
        return (zero, other_memory, again, copied, parameter, same_memory, inference, step,
                through_data, merged, through_numpy, view, loaded, assigned, swapped, turned)

    def test_weight_that_changes(self):
        for change in self.changes():
            with self.subTest(change=change.__name__):
                self.layer.pack()
                change()
                self.assertIsNone(self.layer.packed)
                self.assert_right(self.layer)
                self.assertIsNotNone(self.layer.packed)  # packed again

    def test_weight_that_changes_in_a_compiled_model(self):
        compiled = torch.compile(self.layer, dynamic=True)
        self.assert_right(self.layer, compiled)
        for change in self.changes()[:-1]:  # PyTorch's own check stops a compiled call by strides
            with self.subTest(change=change.__name__):
                change()
                self.assert_right(self.layer, compiled)

    def test_packed_weight_is_used(self):
        call = torch.compile(self.layer, backend="aot_eager")
        for function in (self.layer, call):
            with products() as found:
                function(torch.randn(256, 96))
            self.assertEqual(found, [(None, True)])

    def test_weight_that_changes_at_each_call(self):
        """It is not packed each time."""
        packs = mock.patch.object(tessera.torch.Linear, "_packed", side_effect=AssertionError)
        with packs:
            for _ in range(5):
                self.layer.weight.mul_(1.1)
                self.layer(torch.randn(16, 96))

    def test_functional_call(self):
        x, other = torch.randn(64, 96), torch.randn(160, 96) / 10
        for weight in (other, nn.Parameter(other, requires_grad=False)):
            for _ in range(3):
                result = torch.func.functional_call(self.layer, {"weight": weight}, (x,))
                torch.testing.assert_close(result, functional.linear(x, weight, self.layer.bias),
                                           **NEAR)
        self.assert_right(self.layer)

    def test_operator_with_another_weight(self):
        """The operator compares, too, and reads nothing that is too short."""
        x, other, held = torch.randn(64, 96), torch.randn(160, 96) / 10, self.layer.packed
        kernel = self.layer.kernel
        for packed in (held, torch.empty(16, dtype=torch.uint8), held.clone()):
            result = torch.ops.tessera.linear(x, other, None, None, packed, kernel)
            torch.testing.assert_close(result, functional.linear(x, other), **NEAR)

    def test_old_memory_is_given_back(self):
        old = StorageWeakRef(self.layer.weight.untyped_storage())
        self.layer.weight = nn.Parameter(torch.randn(160, 96), requires_grad=False)
        self.assertTrue(old.expired())

    def test_weight_of_other_sizes(self):
        self.layer.weight = nn.Parameter(torch.randn(40, 96), requires_grad=False)
        self.layer.bias = None
        self.assert_right(self.layer)

    def test_copies_and_files(self):
        for other in (copy.deepcopy(self.layer), pickle.loads(pickle.dumps(self.layer))):
            self.assertIsNone(other.packed)
            self.assert_right(other)
            self.assertIsNotNone(other.packed)
        self.assertIsNotNone(self.layer.packed)

    def test_weights_whose_changes_nobody_sees(self):
        with torch.inference_mode():
            layer = tessera.torch.Linear(8, 8).requires_grad_(False)
        with self.assertRaisesRegex(tessera.Error, "inference mode, where PyTorch counts no "
                                                   "changes"):
            layer.pack()

    def test_optimized_model(self):
        model = torch_blocks.plain().requires_grad_(False)
        tessera.torch.optimize(model)
        for layer, word in ((model[0], "relu"), (model[2], "gelu")):
            layer.pack(256, word)
        x = torch.randn(256, 32)
        with products() as found:
            model(x)
        self.assertEqual([activation for activation, _ in found], ["relu", "gelu"])
        theirs = torch_blocks.plain()
        model.load_state_dict(theirs.state_dict())
        torch.testing.assert_close(model(x), theirs(x), **NEAR)


if __name__ == "__main__":
    unittest.main(verbosity=1)
