"""What tessera.torch's functions and operators refuse, and what they do at their edges.

Where PyTorch is not installed the tests are skipped, unless TESSERA_TEST_TORCH=1 asks for them.
TESSERA_TEST_SEED=N repeats a run.
"""
import os
import subprocess
import sys
import unittest

from test_torch import DEVICES, SEED, Case

import torch
import torch.nn.functional as functional

import tessera
import tessera.torch as tt
from tessera.torch import _run

OPS = torch.ops.tessera


def setUpModule():
    print(f"test_torch_operands: TESSERA_TEST_SEED={SEED}, PyTorch {torch.__version__}, {DEVICES}")


def packed_linear():
    """A layer with a packed weight, and the operator's arguments for it."""
    layer = tt.Linear(48, 32).requires_grad_(False)
    layer.pack(16)
    return layer, (torch.randn(16, 48), layer.weight, layer.bias, None, layer.packed, layer.kernel)


def calls(device="cpu"):
    """(an operator, arguments that it takes), of every operator."""
    def draw(*shape):
        return torch.randn(*shape, device=device)
    x, scale = draw(6, 40), draw(40)
    q, k = draw(2, 5, 4, 16), draw(2, 7, 2, 16)
    how = ([1, 1], [1, 1, 1, 1], [1, 1], 1)
    image, weight, grad = draw(2, 6, 5, 7), draw(8, 6, 3, 3), draw(2, 8, 5, 7)
    lengths = [torch.tensor(n, dtype=torch.int32, device=device) for n in ([3, 5], [7, 2])]
    words = torch.tensor([5, 6], device=device)
    attend = ("bshd", None, None, 0, None, 0.0, None, None, 0, 0.25)
    bias = draw(2, 4, 5, 7)
    out, lse, _ = OPS.attention(q, k, k, bias, None, *lengths, words, None, None, *attend, True,
                                False)
    table = torch.tensor([[1, 0], [2, 3]], dtype=torch.int32, device=device)
    pages = draw(4, 4, 2, 16)
    angles = draw(16, 4)
    cache = draw(2, 16, 2, 16)
    new = draw(2, 3, 2, 16)
    return [
        (OPS.linear, (x, draw(9, 40), draw(9), "gelu")),
        (OPS.matmul, (draw(2, 6, 40), draw(2, 40, 9), draw(9), draw(2, 6, 9), None)),
        (OPS.softmax, (x,)), (OPS.rms_norm, (x, scale, 1e-5)),
        (OPS.layer_norm, (x, scale, scale.clone(), 1e-5)),
        (OPS.add_rms_norm, (x, draw(6, 40), scale, 1e-5)),
        (OPS.add_layer_norm, (x, draw(6, 40), scale, scale.clone(), 1e-5)),
        (OPS.conv, (image, weight, draw(8), *how, "relu")),
        (OPS.conv_backward_data, (grad, weight, [5, 7], *how)),
        (OPS.conv_backward_weight, (image, grad, [3, 3], *how)),
        (OPS.attention, (q, k, k.clone(), bias, None, *lengths, words, None, None, *attend, True,
                         True)),
        (OPS.attention, (q, pages, pages.clone(), None, draw(4), *lengths, None, table, None,
                         *attend[:-1], 0.0, True, False)),
        (OPS.attention_backward, (draw(2, 5, 4, 16), q, k, k.clone(), bias, None, out, lse,
                                  *lengths, words, *attend, True)),
        (OPS.append_kv, (cache, cache.clone(), new, new.clone(), lengths[1], draw(2, 3, 4, 16),
                         angles.cos(), angles.sin(), None, None, None, None, None, "half",
                         None, None, "bshd"))]


def wrong(tensor):
    """(what is wrong with it, a tensor in its place)."""
    other = torch.float16 if tensor.is_floating_point() else torch.float32
    yield "a number", tensor.flatten()[0]
    yield "another type", tensor.to(other)
    yield "without memory", tensor.to("meta")
    if tensor.nbytes > 16:
        yield "16 bytes", tensor.flatten()[:16 // tensor.itemsize]
    for i in range(tensor.dim()):
        yield f"dimension {i} one shorter", tensor.narrow(i, 0, tensor.shape[i] - 1)
    yield "one dimension more", tensor[None]


FEWER_ROWS, MORE_ROWS = "dimension 0 one shorter", "one dimension more"
# What an operator takes all the same: other sizes of a result, other types, what is broadcast.
TAKEN = {"linear": {"x": (FEWER_ROWS, MORE_ROWS)},
         "matmul": {"a": (FEWER_ROWS,), "b": (FEWER_ROWS,)},  # one matrix, for all of the other
         "softmax": {"x": ("another type", "16 bytes", FEWER_ROWS, "dimension 1 one shorter",
                           MORE_ROWS)},
         "rms_norm": {"x": ("another type", FEWER_ROWS, MORE_ROWS), "scale": ("another type",)},
         "layer_norm": {"x": ("another type", FEWER_ROWS, MORE_ROWS)},
         "add_rms_norm": {"scale": ("another type",)},
         "conv": {"x": (FEWER_ROWS, "dimension 2 one shorter", "dimension 3 one shorter"),
                  "weight": ("dimension 2 one shorter", "dimension 3 one shorter")},
         "conv_backward_data": {"grad": (FEWER_ROWS,), "weight": ("dimension 1 one shorter",)},
         "conv_backward_weight": {"x": ("dimension 1 one shorter",),
                                  "grad": ("dimension 1 one shorter",)},
         "attention": {"v": ("dimension 3 one shorter",),
                       "bias": ("a number", "another type", FEWER_ROWS)},
         "attention_backward": {"bias": ("a number", "another type", FEWER_ROWS)}}
# Lengths on a GPU are not read by the host, so that only other operands can refuse these. The
# kernel cuts lengths that exceed the tensors.
UNSEEN_ON_A_GPU = {"attention": {"q": ("dimension 1 one shorter",),
                                 "page_table": ("dimension 1 one shorter",)}}


class Operands(Case):
    def assert_refused_or_right(self, sentence, arguments):
        """A packed weight that a call does not take is refused, or the weight is read instead."""
        try:
            result = OPS.linear(*arguments)
        except tessera.Error as error:
            self.assertRegex(str(error), sentence)
        else:
            torch.testing.assert_close(result, functional.linear(*arguments[:3]))

    def test_packed_weight(self):
        layer, arguments = packed_linear()
        expected = OPS.linear(*arguments)
        torch.testing.assert_close(expected, functional.linear(*arguments[:3]))
        x, weight, bias, activation, packed, kernel = arguments
        sentence = "packed must have the type uint8, the shape"
        for other in (packed[:16], packed[:-1], torch.cat((packed, packed)), packed[None],
                      packed.view(torch.int8), packed.view(torch.float32), packed.repeat(2)[::2],
                      packed[:0], packed[0]):
            self.assert_refused_or_right(sentence, (*arguments[:4], other, kernel))
            with self.assertRaisesRegex(tessera.Error, sentence):
                _run.run_gemm(x, weight, bias, activation, None, True, other, kernel)
        for device in ["meta"] + DEVICES[1:]:
            self.assert_refused_or_right("all tensors must lie on one device",
                                         (*arguments[:4], packed.to(device), kernel))
        self.assert_refused_or_right(sentence, (torch.randn(16, 40), weight[:, :40], bias,
                                                activation, packed, kernel))

    def test_every_operand(self):
        """A tensor that does not go with the others is refused, by one of our sentences."""
        for device in DEVICES:
            for op, arguments in calls(device):
                op(*arguments)
                names = [argument.name for argument in op.default._schema.arguments]
                for i, tensor in enumerate(arguments):
                    if not isinstance(tensor, torch.Tensor):
                        continue
                    taken = TAKEN.get(op.__name__, {}).get(names[i], ())
                    unseen = UNSEEN_ON_A_GPU if device != "cpu" else {}
                    for what, other in wrong(tensor):
                        if what in unseen.get(op.__name__, {}).get(names[i], ()):
                            continue
                        call = (*arguments[:i], other, *arguments[i + 1:])
                        with self.subTest(op=op.__name__, operand=names[i], what=what):
                            if what in taken:
                                op(*call)
                            elif what != "without memory" or len(arguments) > 1:
                                self.assertRaises(tessera.Error, op, *call)


class WrongTypes(Case):
    def functions(self):
        """(name, function, its tensors by name, how many it needs)."""
        x, weight, image = torch.randn(4, 8), torch.randn(5, 8), torch.randn(1, 8, 6)
        q = torch.randn(1, 3, 2, 8)
        scale, lengths = torch.randn(8), torch.tensor([3], dtype=torch.int32)
        more = {"scale": scale, "residual": x}
        filters = [torch.randn(5, 8, *[1] * n) for n in (1, 2, 3)]
        images = [image[(..., *[None] * n)] for n in (0, 1, 2)]
        return [("linear", tt.linear, {"x": x, "weight": weight, "bias": torch.randn(5)}, 2),
                ("matmul", tt.matmul, {"a": x, "b": weight.mT, "bias": torch.randn(5),
                                       "residual": torch.randn(4, 5)}, 2),
                ("softmax", tt.softmax, {"x": x}, 1),
                ("rms_norm", tt.rms_norm, {"x": x, **more}, 1),
                ("layer_norm", tt.layer_norm, {"x": x, **more, "shift": scale}, 1),
                *[(f"conv{n}d", getattr(tt, f"conv{n}d"), {
                    "input": images[n - 1], "weight": filters[n - 1], "bias": torch.randn(5)}, 2)
                  for n in (1, 2, 3)],
                *[(f"conv_transpose{n}d", getattr(tt, f"conv_transpose{n}d"), {
                    "input": images[n - 1], "weight": filters[n - 1].transpose(0, 1),
                    "bias": torch.randn(5)}, 2)
                  for n in (1, 2, 3)],
                ("attention", tt.attention, {"q": q, "k": q, "v": q,
                                             "bias": torch.randn(3, 3), "seqlens_q": lengths,
                                             "seqlens_k": lengths}, 3),
                ("scaled_dot_product_attention", tt.scaled_dot_product_attention,
                 {"query": q, "key": q, "value": q, "attn_mask": torch.randn(2, 8)[:, :2]}, 3),
                ("append_kv", tt.append_kv, {
                    "k_cache": torch.zeros(1, 9, 2, 8), "v_cache": torch.zeros(1, 9, 2, 8),
                    "k_new": q, "v_new": q, "seqlens_k": lengths}, 5),
                ("worst_error", tt.worst_error, {"result": x, "reference": x}, 2)]

    def test_no_tensors(self):
        for name, function, tensors, needed in self.functions():
            function(**tensors)
            for i, (argument, tensor) in enumerate(tensors.items()):
                for value in (None, [1.0], tensor.numpy(), 3, "word"):
                    if value is None and i >= needed:
                        continue
                    with self.subTest(function=name, argument=argument, value=type(value)):
                        with self.assertRaises(TypeError) as caught:
                            function(**{**tensors, argument: value})
                        self.assertIsInstance(caught.exception, tessera.Error)
                        self.assertRegex(str(caught.exception),
                                         f"^[a-z_0-9]+: {argument} must be a torch.Tensor, got ")

    def test_tensors_without_strides(self):
        nested = torch.nested.nested_tensor([torch.randn(3, 8), torch.randn(2, 8)])
        jagged = torch.nested.nested_tensor([torch.randn(3, 8)], layout=torch.jagged)
        for name, function, tensors, _ in self.functions():
            argument, tensor = next(iter(tensors.items()))
            for value in (tensor.to_sparse(), tensor.float().to_mkldnn(), nested, jagged):
                with self.subTest(function=name, layout=value.layout):
                    with self.assertRaisesRegex(
                            tessera.Error, f"^[a-z_0-9]+: {argument} is .* and Tessera takes "
                                           "strided tensors; .* makes one"):
                        function(**{**tensors, argument: value})

    def test_no_factors(self):
        eight = torch.randn(1, 3, 2, 16).to(torch.float8_e4m3fn)
        factors = {name: torch.ones(1) for name in ("descale_q", "descale_k", "descale_v")}
        tt.attention(eight, eight, eight, **factors)
        with self.assertRaisesRegex(TypeError, "^attention: descale_k must be a torch.Tensor, got "
                                               "ndarray"):
            tt.attention(eight, eight, eight, **{**factors, "descale_k": torch.ones(1).numpy()})


class Edges(Case):
    def test_no_features(self):
        """Layers without inputs or without outputs have gradients, as PyTorch's have."""
        for sizes in ((0, 3), (3, 0), (0, 0)):
            for lead in ((), (4,), (2, 3), (0,)):
                mine = tt.Linear(*sizes)
                theirs = torch.nn.Linear(*sizes)
                theirs.load_state_dict(mine.state_dict())
                x = torch.randn(*lead, sizes[0])
                found = []
                for layer in (mine, theirs):
                    leaf = x.clone().requires_grad_()
                    layer(leaf).square().sum().backward()
                    found.append((leaf.grad, layer.weight.grad, layer.bias.grad))
                for one, other in zip(*found):
                    torch.testing.assert_close(one, other)

    def test_empty_results_are_checked(self):
        """A call whose result has no elements refuses what others refuse."""
        x = torch.randn(0, 8)
        for function, arguments in ((tt.linear, (x, torch.randn(5, 8), torch.randn(4))),
                                    (tt.matmul, (x, torch.randn(8, 5), torch.randn(7))),
                                    (tt.matmul, (x, torch.randn(8, 5), None, None,
                                                 torch.randn(0, 4))),
                                    (tt.rms_norm, (x, torch.randn(7))),
                                    (tt.conv1d, (torch.randn(0, 8, 4), torch.randn(5, 8, 1),
                                                 torch.randn(4)))):
            with self.assertRaisesRegex(tessera.Error, "must have the shape"):
                function(*arguments)
        with self.assertRaisesRegex(tessera.Error, "residual must have the shape"):
            tt.layer_norm(x, residual=torch.randn(0, 7))

    def test_without_memory_beside_memory(self):
        x, weight = torch.randn(4, 8, device="meta"), torch.randn(5, 8)
        self.assert_error("x lies on meta and weight on cpu; all tensors must lie on one device",
                          tt.linear, x, weight)
        self.assert_error("x lies on cpu and weight on meta; all tensors must lie on one device",
                          tt.linear, weight, x)

    def test_caches_that_repeat_elements(self):
        cache, new = torch.zeros(1, 9, 1, 8), torch.randn(2, 1, 1, 8)
        self.assert_error("append_kv: k has stride 0 over 2 elements, so that results would "
                          "overlap", tt.append_kv, cache.expand(2, 9, 1, 8),
                          torch.zeros(2, 9, 1, 8), new, new, torch.zeros(2, dtype=torch.int32))


class Start(Case):
    def test_without_sympy(self):
        """Its import takes seconds, and eager calls need nothing of it."""
        code = """if True:
            import sys, torch, tessera.torch as tt
            x, w = torch.randn(4, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)
            y = tt.softmax(tt.matmul(tt.linear(x, w, None, "gelu"), w[None], None))
            y, total = tt.rms_norm(y, torch.ones(8), residual=y)
            tt.layer_norm(y, torch.ones(8), total[0, 0].detach()).sum().backward()
            for n in (1, 2, 3):
                image = torch.randn(2, 3, *[4] * n, requires_grad=True)
                getattr(tt, f"conv{n}d")(image, torch.randn(5, 3, *[3] * n)).sum().backward()
            q, k = torch.randn(1, 4, 5, 8, requires_grad=True), torch.randn(1, 2, 5, 8)
            sdpa = tt.scaled_dot_product_attention
            sdpa(q, k, k, enable_gqa=True).sum().backward()
            sdpa(q[0], k[0, :1], k[0, :1], torch.ones(5, 5, dtype=torch.bool))
            sdpa(q[None], k[None], k[None], is_causal=True, enable_gqa=True)
            tt.attention(q, q, q, dropout=0.5)
            with torch.no_grad():
                tt.append_kv(torch.zeros(2, 9, 1, 8), torch.zeros(2, 9, 1, 8),
                             torch.randn(2, 1, 1, 8), torch.randn(2, 1, 1, 8),
                             torch.zeros(2, dtype=torch.int32))
            meta = [torch.empty(4, 8, device="meta"), torch.empty(8, 8, device="meta")]
            tt.matmul(*meta), tt.linear(*meta), tt.softmax(meta[0])
            tt.optimize(torch.nn.Sequential(torch.nn.Linear(8, 8)), example=x)
            for n in (1, 2, 3):
                image = torch.randn(2, 4, *[4] * n, requires_grad=True)
                transpose = getattr(tt, f"conv_transpose{n}d")
                transpose(image, torch.randn(4, 5, *[3] * n), stride=2).sum().backward()
            tt.attention(q, k, k, layout="bhsd", window=(2, 0),
                         mask="bottom_right").sum().backward()
            ends = torch.tensor([0, 2, 5])
            tt.attention(q[0].transpose(0, 1), k[0].transpose(0, 1), k[0].transpose(0, 1),
                         seqlens_q=ends, seqlens_k=ends).sum().backward()
            with torch.no_grad():
                pages = torch.randn(4, 4, 2, 8)
                tt.attention(torch.randn(1, 1, 4, 8), pages, pages, seqlens_k=torch.tensor([5]),
                             page_table=torch.tensor([[2, 1]]))
            found = [name for name in ("sympy", "torch.utils.flop_counter")
                     if name in sys.modules]
            assert not found, found"""
        made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        self.assertEqual(made.returncode, 0, made.stderr)


class Deterministic(Case):
    def tearDown(self):
        torch.use_deterministic_algorithms(False)

    def test_plans(self):
        """PyTorch's wish changes who chooses, also for a call that was seen before."""
        asked = []
        original = _run.default_dispatcher

        def recorded(device, deterministic=False, batch_invariant=False):
            asked.append(deterministic)
            return original(device, deterministic, batch_invariant)
        _run.default_dispatcher = recorded
        try:
            for wish in (False, True, True, False):
                torch.use_deterministic_algorithms(wish)
                q = torch.randn(1, 2, 11, 8, requires_grad=True)
                tt.scaled_dot_product_attention(q, q, q).sum().backward()
                tt.linear(q, torch.randn(3, 8))
        finally:
            _run.default_dispatcher = original
        self.assertEqual(asked, [False] * 3 + [True] * 3)

    def test_choice_on_hopper(self):
        """The kernels of gradients whose bits differ from run to run are left out."""
        problem = ("fmha kind=backward dtype=bf16 batch=2 heads=16 seqlen_q=4096 seqlen_k=4096 "
                   "hdim=128")
        kernels = [tessera.Dispatcher("sm90a", deterministic=wish).select(problem)["kernel"]
                   for wish in (False, True)]
        self.assertIn("atomic", kernels[0])
        self.assertNotIn("atomic", kernels[1])


class BatchInvariant(Case):
    def setUp(self):
        tt.use_batch_invariant_kernels(True)
        self.addCleanup(tt.use_batch_invariant_kernels, False)

    def test_rows(self):
        """A row of a product has its bits whatever the other rows are."""
        for dtype in (torch.float32, torch.bfloat16):
            x, w = torch.randn(70, 300).to(dtype), torch.randn(90, 300).to(dtype)
            whole = tt.linear(x, w)
            for first, rows in ((0, 1), (5, 1), (3, 2), (11, 40)):
                part = tt.linear(x[first:first + rows], w)
                self.assertTrue(torch.equal(part, whole[first:first + rows]))

    def test_calls_that_were_seen(self):
        """The wish is part of what a call is remembered by."""
        asked = []
        original = _run.default_dispatcher

        def recorded(device, deterministic=False, batch_invariant=False):
            asked.append(batch_invariant)
            return original(device, deterministic, batch_invariant)
        _run.default_dispatcher = recorded
        try:
            x, w = torch.randn(7, 29), torch.randn(5, 29)
            for wish in (False, True, True, False):
                tt.use_batch_invariant_kernels(wish)
                self.assertIs(tt.are_batch_invariant_kernels_enabled(), wish)
                tt.linear(x, w)
        finally:
            _run.default_dispatcher = original
        self.assertEqual(asked, [False, True])

    def test_packed_sequences_on_a_gpu_need_the_longest(self):
        q = torch.empty(17, 2, 64, dtype=torch.bfloat16, device="meta")
        sums = torch.empty(18, dtype=torch.int32, device="meta")
        with self.assertRaisesRegex(tessera.Error, "max_seqlen_q must be given with packed tokens "
                                    "on a GPU and batch invariant kernels"):
            tt.attention(q, q, q, seqlens_q=sums, seqlens_k=sums)

    def test_refusal(self):
        with self.assertRaisesRegex(tessera.Error, "mode must be True or False, got int"):
            tt.use_batch_invariant_kernels(1)


class Flops(Case):
    def count(self, function, *tensors):
        from torch.utils.flop_counter import FlopCounterMode
        with FlopCounterMode(display=False) as counter:
            result = function(*tensors)
            forward = counter.get_total_flops()
            if result.requires_grad:
                result.sum().backward()
            return forward, counter.get_total_flops()

    def test_equal_to_pytorch(self):
        def leaf(*shape):
            return torch.randn(*shape, requires_grad=True)

        for mine, others, tensors in (
                (tt.linear, functional.linear, (leaf(3, 6, 8), leaf(5, 8))),
                (tt.matmul, torch.matmul, (leaf(2, 6, 8), leaf(2, 8, 3))),
                (tt.conv2d, functional.conv2d, (leaf(2, 3, 6, 7), leaf(5, 3, 3, 3)))):
            self.assertEqual(self.count(mine, *tensors), self.count(others, *tensors))
        # PyTorch counts its attention on GPUs alone.
        product = 2 * 2 * 4 * 6 * 7 * 8
        self.assertEqual(self.count(tt.scaled_dot_product_attention, leaf(2, 4, 6, 8),
                                    leaf(2, 4, 7, 8), leaf(2, 4, 7, 8)),
                         (2 * product, 7 * product))
        x = torch.randn(3, 6, 8)
        self.assertEqual(self.count(lambda x: tt.softmax(tt.rms_norm(x)), x), (0, 0))

    def test_lengths(self):
        q = torch.randn(8, 2, 16)
        sums = torch.tensor([0, 3, 8], dtype=torch.int32)
        found = self.count(lambda q: tt.attention(q, q, q, seqlens_q=sums, seqlens_k=sums), q)[0]
        self.assertEqual(found, 2 * 2 * (3 * 3 + 5 * 5) * (16 + 16))


@unittest.skipUnless(torch.cuda.is_available(), "there is no GPU")
class OddAddresses(Case):
    """Kernels for GPUs that copy by 16 bytes serve tensors that lie in between, too."""

    def test_inputs_of_16_bits(self):
        def draw(*shape):
            return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)

        def moved(tensor):
            memory = torch.empty(tensor.numel() + 1, dtype=tensor.dtype, device="cuda")
            return memory[1:].view(tensor.shape).copy_(tensor)

        def gradients(q, k, v, dout):
            q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
            return torch.autograd.grad(tt.attention(q, k, v), (q, k, v), dout)

        token = (2, 33, 4, 64)
        for name, function, shapes in (
                ("linear", tt.linear, ((40, 64), (48, 64), (48,))),
                ("matmul", tt.matmul, ((3, 40, 64), (3, 64, 48))),
                ("conv2d", tt.conv2d, ((2, 16, 9, 9), (24, 16, 3, 3))),
                ("rms_norm", tt.rms_norm, ((7, 64), (64,))),
                ("attention", tt.attention, (token,) * 3),
                ("gradients", gradients, (token,) * 4)):
            tensors = [draw(*shape) for shape in shapes]
            expected, got = function(*tensors), function(*map(moved, tensors))
            pairs = zip(expected, got) if isinstance(got, tuple) else [(expected, got)]
            for want, found in pairs:
                torch.testing.assert_close(found, want, msg=f"{name}, TESSERA_TEST_SEED={SEED}")


if __name__ == "__main__":
    unittest.main(verbosity=1)
