"""Arrays that no problem can say, and arrays of other packages, which stand-ins play."""
import array
import unittest

import numpy

import tessera
from support import Case, random_numbers


class Shared:
    """An array of another package: it gives its memory through DLPack alone."""

    def __init__(self, memory, device=(1, 0)):
        self.memory, self.device, self.streams = memory, device, []

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, stream=None):
        self.streams.append(stream)
        return self.memory.__dlpack__()


class Versioned(Shared):
    """The same, of a package that knows DLPack 1.0."""

    def __dlpack__(self, stream=None, max_version=None):
        self.streams.append(max_version)
        return self.memory.__dlpack__(max_version=max_version)


class Arrays(Case):
    def setUp(self):
        self.random = random_numbers()

    def draw(self, *shape):
        return self.random.standard_normal(shape).astype("float32")

    def test_dlpack_of_the_host(self):
        a, b, out = self.draw(4, 5), self.draw(6, 5), numpy.zeros((4, 6), "float32")
        shared = Shared(out)
        self.assertIs(tessera.matmul(Shared(a), Shared(b.T), out=shared), shared)
        numpy.testing.assert_allclose(out, a @ b.T, rtol=0, atol=8 * 2.0**-24 * 5 * 20)
        made = tessera.matmul(Shared(a), Shared(b.T))
        self.assertEqual(made.tobytes(), out.tobytes())

    @unittest.skipIf(numpy.lib.NumpyVersion(numpy.__version__) < "2.1.0",
                     "this NumPy knows no DLPack 1.0")
    def test_read_only_arrays_through_dlpack(self):
        a, fixed, out = self.draw(4, 5), self.draw(5, 6), self.draw(4, 6)
        fixed.flags.writeable = False
        given = Versioned(fixed)
        tessera.matmul(Versioned(a), given, out=Versioned(out))
        self.assertEqual(given.streams, [(1, 0)])
        self.assertEqual(out.tobytes(), tessera.matmul(a, fixed).tobytes())
        out.flags.writeable = False
        self.assert_refused("out is read-only", tessera.matmul, a, fixed, out=Versioned(out))
        self.assert_refused("x cannot be read through DLPack", tessera.softmax, Shared(fixed))

    def test_dlpack_without_copy(self):
        x = self.draw(3, 8)
        tessera.softmax(Shared(x), out=Shared(x))
        numpy.testing.assert_allclose(x.sum(-1), 1, rtol=0, atol=2.0**-18)

    def test_stream_protocol(self):
        a = Shared(self.draw(4, 4), (2, 3))
        from tessera import _arrays
        self.assertEqual(_arrays.view_of(a, "a", 0x1234).device, ("cuda", 3))
        _arrays.view_of(a, "a", None)
        self.assertEqual(a.streams, [0x1234, 1])  # 1 is the legacy default stream

    def test_mixed_devices(self):
        a, b = self.draw(4, 4), Shared(self.draw(4, 4), (2, 0))
        self.assert_refused("b lies on cuda:0, but|a lies on cpu:0 and b on cuda:0",
                            tessera.matmul, a, b)
        d = tessera.Dispatcher("sm90a")
        self.assert_refused("a lies on cpu:0, but the dispatcher's kernels run on cuda:0",
                            tessera.matmul, a, a, dispatcher=d)
        self.assert_refused("no kernels", tessera.matmul, a, Shared(a, (7, 0)))

    def test_buffer_protocol(self):
        x = array.array("f", [1, 2, 3, 4])
        out = numpy.zeros(4, "float32")
        tessera.softmax(x, out=out)
        self.assertAlmostEqual(float(out.sum()), 1, delta=2.0**-20)
        self.assert_refused("format 'd'", tessera.softmax, array.array("d", [1.0]))

    def test_types(self):
        a = self.draw(4, 4)
        self.assert_refused("float64, which Tessera does not know; convert it", tessera.matmul, a,
                            a.astype("float64"))
        self.assert_refused("not in this machine's order", tessera.matmul, a, a.astype(">f4"))
        self.assert_refused("complex64", tessera.matmul, a.astype("complex64"), a)
        self.assert_refused("b must be fp32 when a is fp32", tessera.matmul, a, a.astype("float16"))
        self.assert_refused("must be an array", tessera.matmul, a, [[1.0]])
        self.assert_refused("must be an array", tessera.matmul, None, a)

    def test_strides(self):
        a = self.draw(8, 8)
        row = numpy.broadcast_to(a[:1], (8, 8))
        self.assert_refused("b repeats elements", tessera.matmul, a, row)
        self.assert_refused("stride -8 over 8 elements", tessera.matmul, a[::-1], a)
        self.assert_refused(r"a has the strides \(8, 2\) over \(8, 4\)", tessera.matmul,
                            a[:, ::2], a[:4])
        self.assert_refused("stride 0 over 8", tessera.matmul, a, a,
                            out=numpy.lib.stride_tricks.as_strided(a, (8, 8), (0, 4)))
        odd = numpy.zeros(65, "int8")[1:].view()
        odd = numpy.ndarray((2, 2), "float32", odd.tobytes(), strides=(6, 4))
        self.assert_refused("stride of 6 bytes", tessera.matmul, odd, odd)

    def test_outputs(self):
        a = self.draw(8, 8)
        self.assert_refused("overlap", tessera.matmul, a, a, out=a)
        self.assert_refused("overlap", tessera.matmul, a[:4], a, out=a[2:6])
        b = self.draw(8, 8)
        b.flags.writeable = False
        self.assert_refused("out is read-only", tessera.matmul, a, a, out=b)
        self.assert_refused(r"out must have the shape \(8, 8\), got \(8, 7\)", tessera.matmul, a, a,
                            out=self.draw(8, 7))

    def test_a_warm_call_refuses_what_a_first_one_does(self):
        d = tessera.Dispatcher()
        a, b, out = self.draw(8, 8), self.draw(8, 8), self.draw(8, 8)
        tessera.matmul(a, b, out=out, dispatcher=d)
        self.assert_refused("overlap", tessera.matmul, a, b, out=a, dispatcher=d)
        out.flags.writeable = False
        self.assert_refused("read-only", tessera.matmul, a, b, out=out, dispatcher=d)

    def test_shapes(self):
        a = self.draw(4, 5)
        self.assert_refused("a has 5 columns and b has 4 rows", tessera.matmul, a, a)
        self.assert_refused("bias must have the shape .4,. and the stride 1", tessera.matmul, a,
                            a.T, bias=a[0])
        self.assert_refused("residual must have the shape", tessera.matmul, a, a.T, residual=a)
        self.assert_refused("do not go together", tessera.matmul, self.draw(2, 4, 5),
                            self.draw(3, 5, 4))
        self.assert_refused("at least 1 dimension", tessera.matmul, numpy.float32(1), a)

    def test_empty_arrays_are_checked_as_others_are(self):
        x, d = self.draw(0, 8), tessera.Dispatcher()
        for call, pattern, how in (
                (tessera.softmax, r"out must have the shape \(0, 8\), got \(3, 5\)",
                 {"out": self.draw(3, 5)}),
                (tessera.layer_norm, r"residual must have the shape \(0, 8\)",
                 {"residual": self.draw(3, 5)}),
                (tessera.layer_norm, "residual must have the type",
                 {"residual": x.astype("float16")}),
                (tessera.rms_norm, r"scale must have the shape \(8,\)", {"scale": self.draw(3)}),
                (tessera.rms_norm, "epsilon must be", {"epsilon": -1.0})):
            self.assert_refused(pattern, call, x, dispatcher=d, **how)
        b, fixed = self.draw(8, 4), self.draw(0, 4)
        fixed.flags.writeable = False
        for pattern, how in ((r"bias must have the shape \(4,\)", {"bias": self.draw(5)}),
                             ("residual must have the shape", {"residual": self.draw(3, 4)}),
                             ("one type", {"bias": self.draw(4).astype("float16"),
                                           "residual": self.draw(0, 4)}),
                             ("read-only", {"out": fixed})):
            self.assert_refused(pattern, tessera.matmul, x, b, dispatcher=d, **how)
        self.assert_refused("gelo", tessera.matmul, x, b, activation="gelo", code="parse_error")
        q, cache = self.draw(2, 0, 4, 16), self.draw(2, 8, 2, 16)
        self.assert_refused("multiple of|divide|heads", tessera.decode, self.draw(2, 0, 3, 16),
                            cache, cache, [1, 1], k_new=self.draw(2, 0, 2, 16),
                            v_new=self.draw(2, 0, 2, 16))
        self.assert_refused("out must have the shape", tessera.attention, q, cache, cache,
                            out=self.draw(2, 0, 4, 8))
        self.assert_refused("in must have the shape .0, 8.", tessera.run,
                            "norm kind=softmax rows=0 columns=8", **{"in": self.draw(0, 5)})
        d.close()
        for call in (lambda: tessera.softmax(x, dispatcher=d),
                     lambda: tessera.matmul(x, b, dispatcher=d)):
            self.assert_refused("the dispatcher was closed", call)

    def test_empty_arrays_of_any_strides(self):
        for shape in ((0, 4, 8), (2, 0, 8), (3, 0)):
            x = numpy.lib.stride_tricks.as_strided(self.draw(8), shape, (-4, 12, 8)[:len(shape)])
            self.assertEqual(tessera.softmax(x).shape, shape)
        a = self.draw(4, 0, 8)[::-1, :, ::2]
        self.assertEqual(tessera.matmul(a, self.draw(4, 4, 3)).shape, (4, 0, 3))

    def test_options(self):
        a = self.draw(4, 4)
        out = self.draw(4, 4)
        self.assert_refused("alpha must be a number", tessera.matmul, a, a, alpha="x")
        self.assert_refused("alpha must be a number", tessera.matmul, a, a, out=out, alpha=[1, 2])
        self.assert_refused("activation must be a word", tessera.matmul, a, a, out=out,
                            activation=["relu"])
        self.assert_refused("rel", tessera.matmul, a, a, activation="rel", code="parse_error")
        self.assert_refused("activation must be a word", tessera.matmul, a, a, activation=3)
        self.assert_refused("must be a Dispatcher, got str", tessera.matmul, a, a,
                            dispatcher="avx512")
        self.assert_refused("stream must be an address", tessera.matmul, a, a, stream="s")


if __name__ == "__main__":
    unittest.main()
