"""8 bits: numbers of fp8 with factors for tensors, blocks and pages, verified by the library, and
arrays of NumPy where the package ml_dtypes brings the type."""
from definition import attend, check, draw

import tessera

here = tessera.Dispatcher()
for fields in ({"qscale": "per_tensor", "mask": "bottom_right", "out": "bf16"},
               {"qscale": "per_block", "out": "fp8"},
               {"qscale": "kv_block", "pages": "table", "page_size": 16, "heads_kv": 2}):
    problem = tessera.attention_problem(batch=2, heads=8, seqlen_q=33, seqlen_k=70, hdim=64,
                                        dtype="fp8", **fields)
    plan = here.plan(problem)
    result = plan.bench(rounds=1)  # on random operands; the result is verified first
    print(f"{problem}: {result['median_seconds'] * 1e6:.1f} us by {plan.kernel}")

try:
    import ml_dtypes
    import numpy as np
except ImportError:
    print("without the package ml_dtypes NumPy has no float8")
    raise SystemExit


def quantised(x):
    """x as numbers of fp8 that use the whole range, and what they are multiplied by."""
    factor = float(abs(x).max()) / float(ml_dtypes.finfo(ml_dtypes.float8_e4m3fn).max)
    return (x / factor).astype(ml_dtypes.float8_e4m3fn), factor


tensors = draw(0, 2, 33, 70, 8, 2, 64)
(q, of_q), (k, of_k), (v, of_v) = (quantised(x) for x in tensors)
wanted = attend(*(np.asarray(x, "float32") * by for x, by in ((q, of_q), (k, of_k), (v, of_v))))
scales = {"descale_q": of_q, "descale_k": of_k, "descale_v": of_v}
out = tessera.attention(q, k, v, **scales)  # of float16
check("what the numbers stand for", out, wanted, 2e-3)
check("numbers before they were quantised", out, attend(*tensors), 0.15)

# A result of 8 bits: scale_o stretches it over the range of the type.
stretch = 100.0
out = np.empty(q.shape, ml_dtypes.float8_e4m3fn)
tessera.attention(q, k, v, **scales, scale_o=stretch, out=out)
check("a result of 8 bits", np.asarray(out, "float32") / stretch, wanted, 2**-4 * abs(wanted).max())
