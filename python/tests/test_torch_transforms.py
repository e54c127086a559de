"""Derivatives in forward mode and torch.func's transforms of tessera.torch beside PyTorch in fp64.

Where PyTorch is not installed the tests are skipped, unless TESSERA_TEST_TORCH=1 asks for them.
TESSERA_TEST_SEED=N repeats a run.
"""
import unittest

from test_torch import ACTIVATIONS, DEVICES, SEED, Case, wide

import torch
import torch.nn.functional as functional
from torch.autograd import forward_ad

import tessera
import tessera.torch as tt


def setUpModule():
    print(f"test_torch_transforms: TESSERA_TEST_SEED={SEED}, PyTorch {torch.__version__}, "
          f"{DEVICES}")


def products(word):
    """(name, ours, PyTorch's, shapes of the arguments); all arguments have derivatives."""
    act = ACTIVATIONS[word]
    return (
        ("linear", lambda x, w, b: tt.linear(x, w, b, word),
         lambda x, w, b: act(functional.linear(x, w, b)), ((3, 5), (4, 5), (4,))),
        ("matmul", lambda a, b, c, r: tt.matmul(a, b, c, word, r),
         lambda a, b, c, r: act(a @ b + c) + r, ((2, 3, 5), (5, 4), (4,), (2, 3, 4))),
        ("conv1d", lambda x, w, b: tt.conv1d(x, w, b, 2, 1, activation=word),
         lambda x, w, b: act(functional.conv1d(x, w, b, 2, 1)), ((2, 3, 7), (4, 3, 3), (4,))),
        ("conv2d", lambda x, w, b: tt.conv2d(x, w, b, padding=1, activation=word),
         lambda x, w, b: act(functional.conv2d(x, w, b, padding=1)),
         ((1, 2, 4, 5), (3, 2, 3, 3), (3,))),
        ("conv3d", lambda x, w, b: tt.conv3d(x, w, b, activation=word),
         lambda x, w, b: act(functional.conv3d(x, w, b)),
         ((1, 2, 3, 3, 4), (3, 2, 2, 2, 2), (3,))),
        ("conv_transpose2d", lambda x, w, b: act(tt.conv_transpose2d(x, w, b, 2, 1, 1)),
         lambda x, w, b: act(functional.conv_transpose2d(x, w, b, 2, 1, 1)),
         ((1, 2, 3, 4), (2, 3, 3, 3), (3,))))


VECTORS = (("matrix by vector", tt.matmul, torch.matmul, ((3, 5), (5,))),
           ("vector by matrix", tt.matmul, torch.matmul, ((5,), (2, 5, 3))),
           ("vectors", tt.matmul, torch.matmul, ((5,), (5,))),
           ("batches on both sides", tt.matmul, torch.matmul, ((2, 1, 3, 5), (3, 5, 4))))


def normalised(x, scale, shift=None):
    """By the formula, because PyTorch's own gradients of derivatives in forward mode are wrong."""
    centred = x if shift is None else x - x.mean(-1, keepdim=True)
    rows = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5) * scale
    return rows if shift is None else rows + shift


ROWS = (
    ("softmax", tt.softmax, lambda x: x.exp() / x.exp().sum(-1, keepdim=True), ((3, 6),)),
    ("rms_norm", tt.rms_norm, normalised, ((3, 6), (6,))),
    ("rms_norm and sum", lambda x, s, r: torch.cat(tt.rms_norm(x, s, residual=r)),
     lambda x, s, r: torch.cat((normalised(x + r, s), x + r)), ((3, 6), (6,), (3, 6))),
    ("layer_norm", tt.layer_norm, normalised, ((3, 6), (6,), (6,))),
    ("layer_norm and sum", lambda x, s, t, r: torch.cat(tt.layer_norm(x, s, t, residual=r)),
     lambda x, s, t, r: torch.cat((normalised(x + r, s, t), x + r)),
     ((3, 6), (6,), (6,), (3, 6))))
CASES = (*products(None), *VECTORS, *ROWS)


class Transforms(Case):
    def draw(self, shapes, device="cpu"):
        return tuple(torch.randn(shape, device=device) for shape in shapes)

    def assert_near(self, mine, wanted, what):
        """Sums of at most 100 products of numbers of about 1, in fp32, at most four in turn."""
        if not isinstance(mine, tuple):
            mine, wanted = (mine,), (wanted,)
        for one, true in zip(mine, wanted):
            self.assertEqual(one.shape, true.shape, what)
            largest = float(true.abs().max()) + 1
            self.assertLess(float((one.double() - true).abs().max()),
                            400 * torch.finfo(torch.float32).eps * largest, f"{what}, seed {SEED}")

    def assert_same(self, transform, ours, theirs, tensors, what):
        """transform: (function, tensors) -> tensors."""
        self.assert_near(transform(ours, tensors), transform(theirs, tuple(map(wide, tensors))),
                         what)


class ForwardMode(Transforms):
    def test_jvp(self):
        """All arguments together, and each alone."""
        for device in DEVICES:
            for name, ours, theirs, shapes in (*CASES, *products("gelu"), *products("tanh")):
                tensors, tangents = self.draw(shapes, device), self.draw(shapes, device)

                def jvp(function, given):
                    return torch.func.jvp(function, given,
                                          tuple(t.to(given[0].dtype) for t in tangents))
                self.assert_same(jvp, ours, theirs, tensors, name)
                for i in range(len(tensors)):
                    def jvp_of_one(function, given):
                        def of_one(x):
                            return function(*given[:i], x, *given[i + 1:])
                        return torch.func.jvp(of_one, (given[i],),
                                              (tangents[i].to(given[0].dtype),))
                    self.assert_same(jvp_of_one, ours, theirs, tensors, f"{name}, argument {i}")

    def test_jacfwd(self):
        for name, ours, theirs, shapes in CASES:
            self.assert_same(lambda f, given: torch.func.jacfwd(f)(*given), ours, theirs,
                             self.draw(shapes), name)

    def test_dual_level(self):
        """Without torch.func, with and without gradients, and below a product."""
        for name, ours, theirs, shapes in CASES:
            for needs in (False, True):
                tensors, tangent = self.draw(shapes), torch.randn(shapes[0])

                def tangent_of(function, given):
                    x = given[0].clone().requires_grad_(needs)
                    with forward_ad.dual_level():
                        y = function(forward_ad.make_dual(x, tangent.to(x.dtype)), *given[1:])
                        found = forward_ad.unpack_dual(y.sin()).tangent
                    if not needs:
                        return found
                    return found.detach(), torch.autograd.grad(found.square().sum(), x)[0]
                self.assert_same(tangent_of, ours, theirs, tensors, name)

    def test_modules(self):
        layer, x = tt.Linear(5, 4, activation="silu"), torch.randn(3, 5)
        weights = dict(layer.named_parameters())
        tangents = {name: torch.randn_like(w) for name, w in weights.items()}

        def outputs(call):
            def function(x, given):
                return call(x, given)
            return function
        found = torch.func.jvp(outputs(lambda x, w: torch.func.functional_call(layer, w, (x,))),
                               (x, weights), (x, tangents))[1]
        wanted = torch.func.jvp(
            lambda x, w: functional.silu(functional.linear(x, w["weight"], w["bias"])),
            (x, weights), (x, tangents))[1]
        torch.testing.assert_close(found, wanted)

    def test_second_order(self):
        func = torch.func
        for word in ACTIVATIONS:
            name, ours, theirs, shapes = products(word)[0]
            tensors = self.draw(shapes)
            for transform in (func.hessian, lambda f: func.jacfwd(func.jacfwd(f)),
                              lambda f: func.jacrev(func.jacrev(f)),
                              lambda f: func.jacrev(func.jacfwd(f))):
                self.assert_same(lambda f, given: transform(lambda x: f(x, *given[1:]).sum())(
                    given[0]), ours, theirs, tensors, f"{name} {word}")

    def test_second_order_beyond_a_sum(self):
        """What comes behind a function has a gradient that changes with the function's result."""
        func = torch.func
        for name, ours, theirs, shapes in (*CASES, *products("silu")):
            for transform in (lambda f: func.grad(lambda x: func.grad(f)(x).sin().sum()),
                              lambda f: lambda x: func.jvp(func.grad(f), (x,), (x,))[1]):
                self.assert_same(
                    lambda f, given: transform(lambda x: f(x, *given[1:]).sin().sum())(given[0]),
                    ours, theirs, self.draw(shapes), name)
        q = torch.randn(1, 2, 3, 8)
        for transform in (func.hessian, lambda f: func.jacrev(func.jacrev(f))):
            with self.assertRaisesRegex(tessera.Error, "no derivative in forward|no second deriv"):
                transform(lambda q: tt.scaled_dot_product_attention(q, q, q).sin().sum())(q)

    def test_of_operators(self):
        """The gradients of a convolution are operators with derivatives, too."""
        how = ([1, 1], [1, 1, 1, 1], [1, 1], 1)
        x, w, grad = self.draw(((1, 2, 4, 5), (3, 2, 3, 3), (1, 3, 4, 5)))
        ops = torch.ops.tessera
        for op, one, other, size in ((ops.conv_backward_data, grad, w, [4, 5]),
                                     (ops.conv_backward_weight, x, grad, [3, 3])):
            tangents = torch.randn_like(one), torch.randn_like(other)
            found = torch.func.jvp(lambda a, b: op(a, b, size, *how), (one, other), tangents)[1]
            wanted = op(tangents[0], other, size, *how) + op(one, tangents[1], size, *how)
            torch.testing.assert_close(found, wanted)

    def test_compiled(self):
        weight, x = torch.randn(4, 5), torch.randn(3, 5)

        def tangent(x):
            return torch.func.jvp(lambda x: tt.linear(x, weight), (x,), (x,))[1]
        compiled = torch.compile(tangent, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(x), tt.linear(x, weight))

    def test_refusals(self):
        q = torch.randn(1, 3, 2, 8)
        sentence = ("attention: attention has no derivative in forward mode (jvp, jacfwd); "
                    "torch.func.vjp and jacrev compute it in reverse mode")
        for function in (tt.attention, tt.scaled_dot_product_attention):
            self.assert_error(sentence, torch.func.jvp, lambda x: function(x, q, q), (q,), (q,))
            with forward_ad.dual_level():
                self.assert_error(sentence, function, q, forward_ad.make_dual(q, q), q)
        cache = torch.zeros(1, 8, 2, 8)
        with forward_ad.dual_level():
            with self.assertRaisesRegex(tessera.Error, "append_kv: a cache has no gradient and no "
                                                       "derivative"):
                tt.append_kv(cache, cache.clone(), forward_ad.make_dual(q, q), q,
                             torch.zeros(1, dtype=torch.int32))


class ReverseMode(Transforms):
    """torch.func's gradients, whose levels PyTorch's operators see one by one."""

    def losses(self, ours, theirs):
        return tuple(lambda *given, f=f: f(*given).sin().sum() for f in (ours, theirs))

    def test_grad(self):
        for device in DEVICES:
            for name, ours, theirs, shapes in (*CASES, *products("gelu"), *self.attentions()):
                places = tuple(range(len(shapes)))
                self.assert_same(lambda f, given: torch.func.grad(f, places)(*given),
                                 *self.losses(ours, theirs), self.draw(shapes, device), name)

    def attentions(self):
        def theirs(q, k, v):
            return functional.scaled_dot_product_attention(q, k, v)
        shapes = ((1, 2, 3, 8),) * 3
        return (("attention", lambda q, k, v: tt.attention(q, k, v, layout="bhsd"), theirs, shapes),
                ("scaled_dot_product_attention", tt.scaled_dot_product_attention, theirs, shapes))

    def test_jacrev(self):
        for name, ours, theirs, shapes in (*CASES, *self.attentions()):
            self.assert_same(lambda f, given: torch.func.jacrev(f)(*given), ours, theirs,
                             self.draw(shapes), name)

    def test_vmap(self):
        """Over the first argument, over all, and over another dimension than the first."""
        for name, ours, theirs, shapes in (*CASES, *self.attentions()):
            first, others = torch.randn(4, *shapes[0]), self.draw(shapes[1:])
            alone = (0, *[None] * len(others))
            for function in ((lambda f: f), (lambda f: torch.func.grad(
                    lambda *given: f(*given).sin().sum()))):
                self.assert_same(lambda f, given: torch.vmap(function(f), alone)(*given), ours,
                                 theirs, (first, *others), name)
                self.assert_same(lambda f, given: torch.vmap(function(f))(*given), ours, theirs,
                                 self.draw([(4, *shape) for shape in shapes]), name)
            self.assert_same(
                lambda f, given: torch.vmap(f, (-1, *alone[1:]), out_dims=-1)(*given), ours, theirs,
                (first.movedim(0, -1), *others), name)

    def test_per_sample_gradients(self):
        layer = tt.Linear(5, 4, activation="gelu")
        x, weights = torch.randn(6, 5), dict(layer.named_parameters())

        def loss(weights, x):
            return torch.func.functional_call(layer, weights, (x,)).sum()
        found = torch.vmap(torch.func.grad(loss), (None, 0))(weights, x)["weight"]
        wanted = torch.stack([torch.func.grad(loss)(weights, row)["weight"] for row in x])
        torch.testing.assert_close(found, wanted)

    def test_refusals(self):
        cache = torch.zeros(2, 1, 8, 2, 8)
        new, length = torch.randn(2, 1, 1, 2, 8), torch.zeros(1, dtype=torch.int32)
        with self.assertRaisesRegex(tessera.Error, "append_kv: torch.vmap has no rule for it"):
            torch.vmap(lambda k, v, n: torch.ops.tessera.append_kv(
                k, v, n, n, length, *[None] * 11, "bshd"))(cache, cache.clone(), new)


if __name__ == "__main__":
    unittest.main(verbosity=1)
