"""The original's 14 configurations of attention beside a second implementation, in NumPy."""
import dataclasses
import importlib.util
import unittest

import numpy

from support import SEED, Case, long

from fmha_utils import FmhaKernelConfig, FmhaProblem, FmhaRunner

EPS = {"fp16": 2.0**-11, "bf16": 2.0**-8}


@dataclasses.dataclass
class Parity:
    """Head dimensions are 128."""
    name: str
    dtype: str = "fp16"
    batch: int = 2
    heads: int = 2
    heads_k: int = 0
    queries: int = 128
    keys: int = 128
    bias: int = 0
    mask: int = 0
    lse: bool = False


CASES = [Parity("fp16"), Parity("bf16", "bf16"), Parity("longer", queries=256, keys=256),
         Parity("small", batch=1, heads=8, queries=64, keys=64),
         Parity("two queries a key head", heads=4, heads_k=2),
         Parity("four queries a key head", heads=8, heads_k=2), Parity("top left", mask=1),
         Parity("bottom right", mask=2), Parity("bias", bias=1), Parity("alibi", bias=2),
         Parity("lse", lse=True), Parity("many", batch=4, heads=8),
         Parity("more keys", queries=64, keys=256),
         Parity("one query", batch=1, heads=4, queries=1)]


def second(q, k, v, case, scale, extra):
    """Head by head, in fp64: (out, lse, the sum of |p v|)."""
    out = numpy.zeros((*q.shape[:3], v.shape[3]))
    size, lse = numpy.zeros_like(out), numpy.zeros(q.shape[:3])
    share = q.shape[1] // k.shape[1]
    i, j = numpy.arange(case.queries)[:, None], numpy.arange(case.keys)
    shift = case.keys - case.queries
    hidden = (j > i) if case.mask == 1 else (j > i + shift) if case.mask == 2 else (j < 0)
    for b, h in numpy.ndindex(*q.shape[:2]):
        values = v[b, h // share]
        s = q[b, h] @ k[b, h // share].T * scale
        s = s + extra[b, h] if case.bias == 1 else s
        s = s - extra[h] * abs(i + shift - j) if case.bias == 2 else s
        weights = numpy.exp(numpy.where(hidden, -numpy.inf, s))
        total = weights.sum(1, keepdims=True)
        out[b, h], size[b, h] = weights @ values / total, weights @ abs(values) / total
        lse[b, h] = numpy.log(total[:, 0])
    return out, lse, size


class Suite(Case):
    def arrays(self, case):
        problem = FmhaProblem(batch=case.batch, nhead_q=case.heads,
                              nhead_k=case.heads_k or case.heads, seqlen_q=case.queries,
                              seqlen_k=case.keys, hdim_q=128, hdim_v=128)
        given = [(0.5 * self.draw(*shape)).astype("float16") for shape in (
            problem.q_shape(), problem.k_shape(), problem.v_shape())]
        return problem, given

    def extra_of(self, case):
        if case.bias == 1:
            return self.draw(case.batch, case.heads, case.queries, case.keys, dtype="float16")
        return 2.0 ** -self.random.uniform(1, 8, case.heads).astype("float32")

    def runs(self, case):
        problem, given = self.arrays(case)
        runner = FmhaRunner(FmhaKernelConfig(data_type=case.dtype, hdim_q=128, hdim_v=128,
                                             gfx_arch=None))
        words = {}
        extra = self.extra_of(case)
        if case.bias:
            words["bias" if case.bias == 1 else "slopes"] = extra
        result = runner.run(*given, problem, mask_type=case.mask, bias_type=case.bias,
                            has_lse=case.lse, **words)
        self.assertTrue(result.success, f"{case.name}: {result.error}")
        q, k, v = (x.astype(runner_type(case.dtype)).astype("float64") for x in given)
        wanted, lse, size = second(q, k, v, case, problem.scale, extra.astype("float64"))
        # The weights and the result are rounded to the type; scores of about 3 have fp32 errors.
        near = (EPS[case.dtype] * 2.5 + 1e-4) * size + EPS[case.dtype] * abs(wanted)
        got = numpy.asarray(result.output).astype("float64")
        worst = float((abs(got - wanted) / near).max())
        self.assertLessEqual(worst, 1, f"{case.name}, seed {SEED}")
        if case.lse:
            got = numpy.asarray(result.outputs["lse"]).astype("float64")
            self.assertLessEqual(float(abs(got - lse).max()), 1e-4, f"{case.name}, seed {SEED}")
        return worst

    @long
    def test_every_configuration(self):
        self.assertEqual(len(CASES), 14)
        for case in CASES:
            if case.dtype != "bf16":
                self.runs(case)

    @long
    @unittest.skipUnless(importlib.util.find_spec("ml_dtypes"), "ml_dtypes is not installed")
    def test_the_configuration_of_bf16(self):
        self.runs(CASES[1])

    def test_the_small_configuration(self):
        self.runs(CASES[3])

    def test_a_wrong_mask_or_bias_is_seen(self):
        case = Parity("wrong", mask=1, bias=1, queries=24, keys=24)
        q, k, v = (x.astype("float64") for x in self.arrays(case)[1])
        extra = self.extra_of(case).astype("float64")
        one = second(q, k, v, case, 0.09, extra)[0]
        for other in (dataclasses.replace(case, mask=0), dataclasses.replace(case, bias=0)):
            self.assertGreater(abs(second(q, k, v, other, 0.09, extra)[0] - one).max(), 0.05)


def runner_type(dtype):
    if dtype != "bf16":
        return "float16"
    import ml_dtypes
    return ml_dtypes.bfloat16


if __name__ == "__main__":
    unittest.main()
