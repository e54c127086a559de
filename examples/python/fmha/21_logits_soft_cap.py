"""A soft cap on the scores, soft_cap * tanh(score / soft_cap), as Gemma 2 has it."""
from definition import attend, check, draw

import tessera

q, k, v = draw(0, 2, 25, 40, 4, 2, 64)
q *= 6  # scores of about 6, some of 20
plain = tessera.attention(q, k, v)
for cap in (50.0, 10.0, 1.0):
    out, lse = tessera.attention(q, k, v, soft_cap=cap, return_lse=True)
    check(f"a cap of {cap:4}", out, attend(q, k, v, soft_cap=cap), 5e-5)
    print(f"  {abs(out - plain).max():.3f} from the output without one, "
          f"largest log-sum-exp {lse.max():.2f}")
    assert lse.max() <= cap + 3.7  # log(40)

try:
    tessera.attention(q, k, v, soft_cap=-1.0)
except tessera.Error as refused:
    print(f"{refused.code}: {refused}")
else:
    raise SystemExit("a cap below 0 was accepted")
