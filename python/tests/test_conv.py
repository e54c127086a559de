"""Convolutions against sums in fp64, one place of the filter at a time."""
import itertools
import os
import unittest

import ml_dtypes
import numpy

import tessera
from support import ROOT, ROUNDING, Case, random_numbers, wide

# Spatial shapes: the image, the filter, and how it moves.
PLANE = dict(size=(9, 11), filter=(3, 2), stride=(2, 1), padding=((1, 2), (0, 1)), dilation=(1, 2))


def pairs(value, ndim):
    values = value if isinstance(value, tuple) else (value,) * ndim
    return [v if isinstance(v, tuple) else (v, v) for v in values]


class Naive:
    """The three directions in fp64, images (n, c, ...) and filters (k, c / groups, ...)."""

    def __init__(self, size, filter, stride=1, padding=0, dilation=1, groups=1):
        ndim = len(size)
        self.size, self.filter, self.groups = size, filter, groups
        self.pads = pairs(padding, ndim)
        self.stride, self.dilation = (value if isinstance(value, tuple) else (value,) * ndim
                                      for value in (stride, dilation))
        self.out = tuple((n + sum(p) - d * (f - 1) - 1) // s + 1 for n, p, d, f, s in zip(
            size, self.pads, self.dilation, filter, self.stride))

    def padded(self, x):
        """A negative number behind cuts off the last elements."""
        x = numpy.pad(wide(x), [(0, 0), (0, 0), *[(p[0], max(p[1], 0)) for p in self.pads]])
        return x[(..., *[slice(n + sum(p)) for n, p in zip(self.size, self.pads)])]

    def places(self):
        """For each place of the filter: which elements of the padded image it meets."""
        for place in itertools.product(*map(range, self.filter)):
            yield place, tuple(slice(f * d, f * d + (o - 1) * s + 1, s) for f, d, o, s in zip(
                place, self.dilation, self.out, self.stride))

    def grouped(self, array, axis):
        shape = array.shape
        return wide(array).reshape(*shape[:axis], self.groups, -1, *shape[axis + 1:])

    def forward(self, x, w):
        x, w = self.grouped(self.padded(x), 1), self.grouped(w, 0)
        return sum(numpy.einsum("ngc...,gkc->ngk...", x[(..., *at)], w[(..., *place)])
                   for place, at in self.places()).reshape(x.shape[0], -1, *self.out)

    def backward_data(self, y, w):
        y, w = self.grouped(y, 1), self.grouped(w, 0)
        shape = [p[0] + n + max(p[1], 0) for n, p in zip(self.size, self.pads)]
        x = numpy.zeros((y.shape[0], self.groups, w.shape[2], *shape))
        for place, at in self.places():
            x[(..., *at)] += numpy.einsum("ngk...,gkc->ngc...", y, w[(..., *place)])
        inner = tuple(slice(p[0], p[0] + n) for p, n in zip(self.pads, self.size))
        return x[(..., *inner)].reshape(y.shape[0], -1, *self.size)

    def backward_weight(self, x, y):
        x, y = self.grouped(self.padded(x), 1), self.grouped(y, 1)
        w = numpy.zeros((self.groups, y.shape[2], x.shape[2], *self.filter))
        flat = y.reshape(*y.shape[:3], -1)
        for place, at in self.places():
            part = x[(..., *at)]
            w[(..., *place)] = numpy.einsum("ngkp,ngcp->gkc", flat,
                                            part.reshape(*part.shape[:3], -1))
        return w.reshape(-1, *w.shape[2:])

    def terms(self, direction, x, w):
        """The most products that one element is a sum of."""
        if direction == "forward":
            return w[0].size
        if direction == "backward_data":
            return w.size // self.groups // w.shape[1]
        return x.shape[0] * int(numpy.prod(self.out))


def last(array):
    """Channels behind the spatial dimensions, without gaps."""
    return numpy.ascontiguousarray(numpy.moveaxis(array, 1, -1))


def first(array):
    return numpy.moveaxis(array, -1, 1)


class Convolved(Case):
    """Draws arrays, and compares results with the sums in fp64."""

    def setUp(self):
        self.random = random_numbers()

    def draw(self, *shape, dtype="float32"):
        return self.random.standard_normal(shape).astype(dtype)

    def tensors(self, n, c, k, dtype="float32", **how):
        naive = Naive(**how)
        return naive, [self.draw(*shape, dtype=dtype) for shape in (
            (n, c, *naive.size), (k, c // naive.groups, *naive.filter), (n, k, *naive.out))]

    def near(self, got, wanted, sizes, terms):
        """Sums in fp32: a rounding for each of the terms, of the sum of the products' sizes, and
        one of the result."""
        self.assertEqual(got.shape, wanted.shape)
        relative = (terms + 8) * 2.0**-24 + ROUNDING[got.dtype.name]
        self.assert_near(got, wanted, relative * sizes + 1e-30)


class Conv(Convolved):
    def check(self, n, c, k, dtype="float32", layout="nchw", **how):
        """The three directions, twice: the second call is a warm one."""
        naive, (x, w, y) = self.tensors(n, c, k, dtype, **how)
        there, back = (last, first) if layout == "nhwgc" else (lambda a: a, lambda a: a)
        given = {name: how[name] for name in ("stride", "padding", "dilation", "groups")
                 if name in how}
        given["layout"] = layout
        for _ in range(2):
            for name, function, args, more in (
                    ("forward", tessera.conv, (x, w), {}),
                    ("backward_data", tessera.conv_backward_data, (y, w), {"size": naive.size}),
                    ("backward_weight", tessera.conv_backward_weight, (x, y),
                     {"filter": naive.filter})):
                with self.subTest(direction=name, layout=layout, dtype=dtype, **how):
                    got = function(*map(there, args), **given, **more)
                    self.assertTrue(got.flags.c_contiguous)
                    exact = getattr(naive, name)
                    self.near(back(got), exact(*args), exact(*map(abs, map(wide, args))),
                              naive.terms(name, x, w))

    def test_dimensions(self):
        for layout in ("nhwgc", "nchw"):
            self.check(2, 3, 5, layout=layout, size=(17,), filter=(4,), stride=2, padding=((3, 1),),
                       dilation=2)
            self.check(2, 3, 5, layout=layout, **PLANE)
            self.check(1, 3, 4, layout=layout, size=(4, 6, 5), filter=(2, 3, 1), stride=(1, 2, 2),
                       padding=(1, 1, 0), dilation=(2, 1, 1))

    def test_padding_of_the_filters_extent_and_negative(self):
        for layout in ("nhwgc", "nchw"):
            for groups in (1, 3):
                self.check(2, 3, 6, layout=layout, size=(5, 7), filter=(1, 3), groups=groups,
                           padding=((2, 1), (4, -2)), stride=(2, 1))

    def test_groups(self):
        for layout in ("nhwgc", "nchw"):
            self.check(2, 6, 9, layout=layout, groups=3, **PLANE)
            self.check(2, 6, 6, layout=layout, groups=6, **PLANE)   # depthwise
            self.check(2, 4, 12, layout=layout, groups=4, **PLANE)  # and with a multiplier

    def test_pointwise(self):
        for stride in (1, 2):
            self.check(3, 20, 13, layout="nhwgc", size=(7, 6), filter=(1, 1), stride=stride)

    def test_types(self):
        for dtype in ("float16", ml_dtypes.bfloat16):
            for layout in ("nhwgc", "nchw"):
                self.check(2, 8, 6, dtype=dtype, layout=layout, groups=2, **PLANE)

    def test_random(self):
        for _ in range(12):
            ndim, groups = 2, int(self.random.integers(1, 4))
            draw = lambda low, high: tuple(map(int, self.random.integers(low, high, ndim)))
            filter, dilation = draw(1, 4), draw(1, 3)
            padding = tuple(tuple(map(int, self.random.integers(0, d * (f - 1) + 1, 2)))
                            for f, d in zip(filter, dilation))
            self.check(int(self.random.integers(1, 4)), groups * int(self.random.integers(1, 9)),
                       groups * int(self.random.integers(1, 9)), groups=groups, size=draw(7, 20),
                       filter=filter, dilation=dilation, stride=draw(1, 4), padding=padding,
                       layout=str(self.random.choice(["nhwgc", "nchw"])))

    def test_elements_in_one_place(self):
        """Pixels, images and filters that strides of 0 repeat."""
        def shared(array, axes):
            one = array[tuple(slice(1 if i in axes else None) for i in range(4))]
            return numpy.broadcast_to(last(one), last(array).shape)

        for filter in ((1, 1), (3, 2)):
            naive, tensors = self.tensors(3, 8, 16, size=(4, 5), filter=filter)
            for axes in ((3,), (2, 3), (0,), (0, 2, 3)):
                x, w, y = (shared(tensor, axes) for tensor in tensors)
                for name, function, args, more in (
                        ("forward", tessera.conv, (x, w), {}),
                        ("backward_data", tessera.conv_backward_data, (y, w), {}),
                        ("backward_weight", tessera.conv_backward_weight, (x, y),
                         {"filter": filter})):
                    with self.subTest(direction=name, filter=filter, axes=axes):
                        got, exact = function(*args, **more), getattr(naive, name)
                        args = [first(a) for a in args]
                        self.near(first(got), exact(*args), exact(*map(abs, map(wide, args))), 200)

    def test_bytes_of_int8(self):
        naive = Naive(**PLANE)
        x = self.random.integers(-128, 128, (2, 5, 9, 11)).astype("int8")
        w = self.random.integers(-128, 128, (4, 5, 3, 2)).astype("int8")
        how = {name: PLANE[name] for name in ("stride", "padding", "dilation")}
        got = tessera.conv(last(x), last(w), **how)
        self.assertEqual(got.dtype, numpy.int32)
        numpy.testing.assert_array_equal(first(got), naive.forward(x, w))

    def test_epilogue(self):
        naive, (x, w, y) = self.tensors(2, 6, 4, groups=2, **PLANE)
        how = {name: PLANE[name] for name in ("stride", "padding", "dilation")}
        bias = self.draw(4)
        plain = naive.forward(x, w) * 0.5 + bias[:, None, None]
        sizes = naive.forward(abs(x), abs(w)) + abs(bias)[:, None, None] + abs(y)
        for layout, there, back in (("nhwgc", last, first), ("nchw", lambda a: a, lambda a: a)):
            for _ in range(2):
                residual = there(y).copy()
                for out in (numpy.full_like(residual, 7), residual):  # the second time in place
                    got = tessera.conv(there(x), there(w), groups=2, bias=bias, activation="relu",
                                       residual=residual, alpha=0.5, out=out, layout=layout, **how)
                    self.assertIs(got, out)
                    self.near(back(got), numpy.maximum(plain, 0) + y, sizes, 100)

    def test_adding_to_what_is_there(self):
        naive, (x, w, y) = self.tensors(2, 6, 4, groups=2, **PLANE)
        how = {name: PLANE[name] for name in ("stride", "padding", "dilation")}
        for name, function, args, old in (
                ("forward", tessera.conv, (x, w), y),
                ("backward_data", tessera.conv_backward_data, (y, w), x),
                ("backward_weight", tessera.conv_backward_weight, (x, y), w)):
            with self.subTest(direction=name):
                out = old.copy()
                function(*args, out=out, alpha=2.0, beta=-0.5, groups=2, layout="nchw", **how)
                exact = getattr(naive, name)
                self.near(out, 2 * exact(*args) - 0.5 * wide(old),
                          2 * exact(*map(abs, map(wide, args))) + abs(old),
                          naive.terms(name, x, w))

    def test_no_images(self):
        naive, (x, w, y) = self.tensors(0, 3, 5, size=(6, 6), filter=(3, 3))
        self.assertEqual(tessera.conv(x, w, layout="nchw").shape, (0, 5, 4, 4))
        self.assertEqual(tessera.conv_backward_data(y, w, layout="nchw").shape, (0, 3, 6, 6))
        grown = numpy.ones_like(w)
        tessera.conv_backward_weight(x, y, out=grown, beta=3.0, layout="nchw")
        numpy.testing.assert_array_equal(grown, 3)

    def test_least_image(self):
        w, y = self.draw(4, 3, 3, 3), self.draw(1, 4, 5, 5)
        got = tessera.conv_backward_data(y, w, stride=2, padding=1, layout="nchw")
        self.assertEqual(got.shape, (1, 3, 9, 9))
        self.assertEqual(tessera.conv(got, w, stride=2, padding=1, layout="nchw").shape, y.shape)


class Memory(Convolved):
    """Views, which are taken as they lie."""

    def test_channels_last_under_a_view(self):
        naive, (x, w, _) = self.tensors(2, 4, 6, **PLANE)
        how = {name: PLANE[name] for name in ("stride", "padding", "dilation")}
        for _ in range(2):
            got = tessera.conv(first(last(x)), first(last(w)), layout="nchw", **how)
            self.assertTrue(numpy.moveaxis(got, 1, -1).flags.c_contiguous)
            self.near(got, naive.forward(x, w), naive.forward(abs(x), abs(w)), 24)

    def test_gaps(self):
        naive, (x, w, y) = self.tensors(2, 4, 6, groups=2, **PLANE)
        how = {name: PLANE[name] for name in ("stride", "padding", "dilation")}
        big = self.draw(3, 12, 14, 9)
        view = big[:2, 1:10, 2:13, 3:7]
        view[...] = last(x)
        out = numpy.full((2, *naive.out, 8), 7, "float32")
        tessera.conv(view, last(w), out=out[..., 1:7], groups=2, **how)
        self.near(first(out[..., 1:7]), naive.forward(x, w), naive.forward(abs(x), abs(w)), 24)
        numpy.testing.assert_array_equal(out[..., [0, 7]], 7)

    def test_problem_of_plain_arrays_has_no_strides(self):
        x, w = self.draw(2, 8, 8, 4), self.draw(6, 3, 3, 4)
        mine = tessera.Dispatcher()
        tessera.conv(x, w, padding=1, dispatcher=mine)
        (plan, _), = mine._plans.values()
        self.assertEqual(plan.problem, tessera.conv_problem(n=2, c=4, k=6, size=(8, 8), filter=3,
                                                            padding=1))


class Problems(Case):
    def test_builder(self):
        made = tessera.conv_problem("backward_weight", n=8, c=6, k=9, size=(16, 20), filter=(3, 1),
                                    stride=2, padding=((1, 0), 0), groups=3, dtype=numpy.float16,
                                    layout="nchw")
        self.assertEqual(made, tessera.Problem(
            "conv direction=backward_weight n=8 c=6 k=9 g=3 h=16 w=20 y=3 x=1 stride_h=2 "
            "stride_w=2 pad_h=1 pad_right_h=0 dtype=fp16 layout=nchw"))
        self.assertEqual([operand.name for operand in made.operands],
                         ["in", "grad_out", "grad_weight"])
        self.assertEqual(made.flops, 2.0 * 8 * 9 * 8 * 10 * 2 * 3)

    def test_run(self):
        """A whole problem, its operands by name; groups are a dimension of their own there."""
        random = random_numbers()
        x = random.standard_normal((2, 6, 5, 2, 3)).astype("float32")
        w = random.standard_normal((2, 4, 3, 3, 3)).astype("float32")
        problem = tessera.conv_problem(n=2, c=6, k=8, groups=2, size=(6, 5), filter=3)
        got = tessera.run(problem, **{"in": x, "weight": w})
        same = tessera.conv(x.reshape(2, 6, 5, 6), w.reshape(8, 3, 3, 3), groups=2)
        numpy.testing.assert_array_equal(got.reshape(same.shape), same)


class Refusals(Case):
    def setUp(self):
        self.x, self.w = numpy.zeros((2, 6, 6, 4), "float32"), numpy.zeros((8, 3, 3, 4), "float32")

    def refused(self, pattern, *arguments, function=tessera.conv, **named):
        self.assert_refused(pattern, function, *(arguments or (self.x, self.w)), **named)

    def test_arguments(self):
        self.refused("^conv: stride must be 1 number, or 2 because there are 2 spatial dimensions, "
                     "got 3", stride=(1, 1, 1))
        self.refused("stride must be at least 1, got 0", stride=0)
        self.refused("stride must be a whole number, got 1.5", stride=1.5)
        self.refused("padding must be at least 0, got -1", padding=-1)
        self.refused("a pair .before, behind., got 3 numbers", padding=((1, 1, 1), 0))
        self.refused("padding must be at least 0, got -1", padding=((-1, 0), 0))
        self.refused("layout must be one of nhwgc, .*, got 'nchwc'", layout="nchwc")
        self.refused("groups must be at least 1, got 0", groups=0)
        self.refused("there is no out whose contents", beta=1.0)
        self.refused("activation must be a word", activation=3)
        self.refused("conv_backward_weight: give the filter's size", self.x, self.x,
                     function=tessera.conv_backward_weight)

    def test_shapes(self):
        self.refused("x has 4 channels, and w has 4 in each of 2 groups, which are 8; the two must "
                     "be equal", groups=2)
        self.refused("groups must divide the 8 filters of w, got 3", self.x[..., :3],
                     self.w[..., :1], groups=3)
        self.refused("x must have 3 to 5 dimensions, got 2", self.x[0, 0], self.w)
        self.refused("x has 4 dimensions and w 3; the two must be equal", self.x, self.w[:, 0])
        self.refused("the filter spans 9 elements of h, but the padded image has 6", dilation=4)
        self.refused("out must have the spatial size .4, 4., which a filter of .3, 3. on an image "
                     "of .6, 6. gives, got .6, 6.", out=numpy.zeros((2, 6, 6, 8), "float32"))
        self.refused("x has 2 images and out 1; the two must be equal",
                     out=numpy.zeros((1, 4, 4, 8), "float32"))
        self.refused("w has 8 filters, and out has 7 channels; the two must be equal",
                     out=numpy.zeros((2, 4, 4, 7), "float32"))
        self.refused("bias must have the shape .8,. and the stride 1", bias=self.x[0, 0, 0])
        self.refused("residual must have the shape", residual=self.x)
        self.refused(r"size is \(9, 9\), but out has the spatial size \(6, 6\)",
                     numpy.zeros((2, 4, 4, 8), "float32"), self.w, out=self.x, size=(9, 9),
                     function=tessera.conv_backward_data)

    def test_memory(self):
        self.refused("must be neighbours in all arrays alike; along the two, the strides of x 2 "
                     "and 8 and w 1 and 4", numpy.zeros((2, 6, 6, 8), "float32")[..., ::2], self.w)
        self.refused("x has the stride -", self.x[:, ::-1], self.w)
        self.refused("residual must lie as out does",
                     residual=numpy.zeros((2, 4, 8, 4), "float32").swapaxes(2, 3))
        folded = numpy.lib.stride_tricks.as_strided(numpy.zeros(8, "float32"), (2, 4, 4, 8),
                                                    (0, 0, 0, 4))
        self.refused("out has stride 0 over 2 elements", out=folded)
        twice = numpy.lib.stride_tricks.as_strided(numpy.zeros(600, "float32"), (2, 4, 4, 8),
                                                   (512, 128, 16, 4))
        self.refused("strides must not fold out onto itself: 4 is less than the 8 elements",
                     out=twice)
        small = self.x[:, :4, :4]
        self.refused("out must not overlap in", small, self.w[:4], out=small, padding=1)

    def test_types(self):
        self.refused("x has the type float64", self.x.astype("float64"), self.w)
        self.refused("^conv: ", self.x, self.w.astype("float16"))
        self.refused("bias and residual must have one type, got float32 and float16",
                     bias=numpy.zeros(8, "float32"), residual=numpy.zeros((2, 4, 4, 8), "float16"))


class Nets(Case):
    """The files of bench/shapes hold whole nets: as many multiplications as are published."""

    # Billions of multiplications for one image as torchvision's tables have them, and the
    # classifier's, which is no convolution here.
    PUBLISHED = {"resnet50": (4.09, 2048e3), "resnext101": (16.41, 2048e3),
                 "mobilenet_v3": (0.22, 0), "efficientnet": (0.39, 1280e3),
                 "convnext": (4.46, 768e3), "video_3d": (40.52, 512 * 400)}

    def test_multiplications(self):
        for name, (published, classifier) in self.PUBLISHED.items():
            total = classifier
            with open(os.path.join(ROOT, "bench/shapes", name + ".txt"), encoding="utf-8") as file:
                lines = [line.partition("#") for line in file if line.startswith("conv ")]
            for line, _, note in lines:
                problem = tessera.Problem(line.strip())
                times = int(note.split()[0]) if note else 1
                total += times * problem.flops / 2 / int(problem.get("n"))
            self.assertEqual(round(total / 1e9, 2), published, name)


if __name__ == "__main__":
    unittest.main()
