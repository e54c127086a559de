"""The nets of bench/nets.py have the layers that data/nets/convolutions.txt lists for them.

Where PyTorch is not installed the tests are skipped, unless TESSERA_TEST_TORCH=1 asks for them.
"""
import os
import pathlib
import sys
import unittest

try:
    import torch
except ImportError:
    if os.environ.get("TESSERA_TEST_TORCH") == "1":
        raise
    raise unittest.SkipTest("PyTorch is not installed; './dev setup --torch' installs it")

ROOT = pathlib.Path(os.environ.get("TESSERA_ROOT", pathlib.Path(__file__).resolve().parents[2]))
sys.path += [str(ROOT / "bench"), str(ROOT / "tools")]
import net_modules
from record_convolutions import Recorder

# Sections of the file that hold more than the part of the net that is built here.
PARTS = {"yolov8m", "sd_vae"}


def layers_of(section):
    found, is_wanted = {}, False
    for line in (ROOT / "data/nets/convolutions.txt").read_text(encoding="ascii").splitlines():
        count, _, words = line.partition(" ")
        if count == "net":
            is_wanted = words.split()[0] == section
        elif is_wanted and count:
            found[words] = int(count)
    return found


class Nets(unittest.TestCase):
    def test_layers(self):
        for name, (make, size, section) in net_modules.NETS.items():
            recorder = Recorder()
            with torch.device("meta"), torch.no_grad():
                model, x = make(), torch.zeros(1, *size)
                with recorder:
                    model.eval()(x)
            wanted = layers_of(section)
            with self.subTest(net=name):
                if section not in PARTS:
                    self.assertEqual(recorder.layers, wanted)
                for words, count in recorder.layers.items():
                    self.assertLessEqual(count, wanted.get(words, 0), words)


if __name__ == "__main__":
    unittest.main(verbosity=1)
