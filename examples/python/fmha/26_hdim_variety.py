"""Heads of many lengths, equal and unequal, and the latent ones of DeepSeek."""
from definition import attend, check, draw

import tessera

for hdim, hdim_v in ((8, 8), (32, 32), (40, 40), (64, 64), (80, 96), (96, 128), (128, 128),
                     (160, 160), (192, 128), (256, 256), (13, 5)):
    q, k, v = draw(hdim, 1, 7, 19, 4, 2, hdim, hdim_v)
    out = tessera.attention(q, k, v)
    assert out.shape == (1, 7, 4, hdim_v)
    check(f"hdim {hdim:3}, hdim_v {hdim_v:3}", out, attend(q, k, v), 1e-5)

# All heads read one latent vector of a token; its first 512 elements are the values.
q, latent, _ = draw(0, 2, 1, 30, 16, 1, 576)
scale = 192**-0.5
check("latent vectors of 576", tessera.attention(q, latent, latent[..., :512], scale=scale),
      attend(q, latent, latent[..., :512], scale=scale), 1e-5)

try:
    tessera.attention(*draw(0, 1, 1, 3, 1, 1, 584))
except tessera.Error as refused:
    print(f"{refused.code}: {refused}")
else:
    raise SystemExit("a head of 584 was accepted")
