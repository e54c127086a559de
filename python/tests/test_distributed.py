"""Sweeps on many workers; what needs Ray is skipped where it is not installed."""
import contextlib
import io
import os
import signal
import sys
import tempfile
import threading
import time
import types
import unittest
import unittest.mock

import tessera
from tessera import distributed

from support import Case

try:
    import ray
except ImportError:
    ray = None
if ray is None and os.environ.get("TESSERA_TEST_RAY"):
    raise SystemExit("TESSERA_TEST_RAY is set, and the package ray is missing")

PROBLEMS = [f"gemm m={m} n={n} k=32" for m in (8, 24, 40) for n in (16, 48, 80)]
OPTIONS = {"problems": PROBLEMS, "kernels": ["fp32_rcr_essential"], "threads": 1, "jobs": 1}


class Options(Case):
    def test_words_become_options(self):
        words = "--problems a b --kernels all-legal --budget 90s --threads 2 --timeout 1.5 --retry"
        self.assertEqual(distributed._options_of(words.split()),
                         {"problems": ["a", "b"], "kernels": ["all-legal"], "budget": "90s",
                          "threads": 2, "timeout": 1.5, "retry": True})

    def test_a_word_without_an_option(self):
        with self.assertRaisesRegex(tessera.Error, "an option such as --problems, got 'x'"):
            distributed._options_of(["x"])

    def test_negative_numbers(self):
        with self.assertRaisesRegex(tessera.Error, "at least 0, got -1 and 0"):
            distributed.sweep(store="s.sqlite", workers=-1, **OPTIONS)

    @unittest.skipUnless(ray is None, "Ray is installed")
    def test_without_ray(self):
        out = io.StringIO()
        with contextlib.redirect_stderr(out):
            self.assertEqual(distributed.main(["--local", "1", "--store", "s.sqlite"]), 1)
        self.assertEqual(out.getvalue(), "tessera: tessera.distributed needs Ray; install it with: "
                                         "pip install 'tessera[ray]'\n")

    def ray_of(self, version):
        """A Ray that begins nothing: what init() was given, and the token of its environment."""
        given = {}

        def init(**options):
            given.update(options, mode=os.environ.get("RAY_AUTH_MODE"),
                         token=os.environ.get("RAY_AUTH_TOKEN"))

        fake = types.SimpleNamespace(__version__=version, init=init, cluster_resources=dict,
                                     shutdown=lambda: None, is_initialized=lambda: False)
        loader = types.SimpleNamespace(reset_cache=lambda: None)
        core = types.SimpleNamespace(
            Config=types.SimpleNamespace(initialize=lambda _: given.setdefault("read", True)),
            AuthenticationTokenLoader=types.SimpleNamespace(instance=lambda: loader))
        return given, unittest.mock.patch.dict(sys.modules, {"ray": fake, "ray._raylet": core})

    def test_local_workers_are_for_this_machine_and_user(self):
        given, patch = self.ray_of("2.60.0")
        clean = {name: value for name, value in os.environ.items()
                 if not name.startswith("RAY_AUTH")}
        with patch, unittest.mock.patch.dict(os.environ, clean, clear=True):
            for _ in range(2):
                with self.assertRaisesRegex(tessera.Error, "no processor for a worker, got 0"):
                    distributed.sweep(store="s.sqlite", workers=2, **OPTIONS)
                self.assertEqual(given["_node_ip_address"], "127.0.0.1")
                self.assertEqual(given["mode"], "token")
                self.assertTrue(given.pop("read"))
                self.assertGreaterEqual(len(given["token"]), 32)
                self.assertNotIn("RAY_AUTH_TOKEN", os.environ)
                self.assertNotIn("RAY_AUTH_MODE", os.environ)

    def test_ray_that_cannot_read_its_variables_anew(self):
        given, patch = self.ray_of("2.60.0")
        with patch, unittest.mock.patch.dict(sys.modules, {"ray._raylet": None}):
            with self.assertRaisesRegex(tessera.Error, "Ray was imported before"):
                distributed.sweep(store="s.sqlite", workers=2, **OPTIONS)
        self.assertEqual(given, {})

    def test_versions_without_tokens(self):
        for version in ("2.9.3", "2.51.2", "1.13.0"):
            given, patch = self.ray_of(version)
            with patch, self.assertRaisesRegex(tessera.Error, f"2.52 or later.*got {version}"):
                distributed.sweep(store="s.sqlite", workers=1, **OPTIONS)
            self.assertNotIn("mode", given)  # init() was not called
        given, patch = self.ray_of("3.0.0rc1")
        with patch, self.assertRaisesRegex(tessera.Error, "no processor"):
            distributed.sweep(store="s.sqlite", address="auto", **OPTIONS)
        self.assertEqual(given["address"], "auto")

    def test_shards_of_machines_without_a_common_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            problems = 0
            for shard in (1, 2):
                content = distributed.measure_shard(OPTIONS, shard, 2, os.path.join(folder, "no"))
                file = os.path.join(folder, f"{shard}of2.sqlite")
                with open(file, "wb") as stream:
                    stream.write(content)
                problems += tessera.data(what="describe", files=[file])["problems"]
            self.assertEqual(problems, len(PROBLEMS))


@unittest.skipIf(ray is None, "needs the package ray")
class Workers(Case):
    def rows_of(self, file):
        return tessera.data(what="describe", files=[file])["rows"]

    def test_two_workers_one_of_which_is_killed(self):
        with tempfile.TemporaryDirectory() as folder:
            whole = os.path.join(folder, "whole.sqlite")
            tessera.sweep(store=whole, **OPTIONS)
            wanted = self.rows_of(whole)
            store = os.path.join(folder, "all.sqlite")
            killed = []
            killer = threading.Thread(target=self.kill_one, args=(store + ".shards", killed))
            killer.start()
            result = distributed.sweep(store=store, workers=2, shards=3, **OPTIONS)
            killer.join()
            self.assertEqual(len(killed), 1, "no worker was found to be killed")
            self.assertEqual(result["shards"], 3)
            self.assertEqual(self.rows_of(store), wanted)
            self.assertFalse(os.path.exists(store + ".shards"))

    @staticmethod
    def kill_one(folder, killed):
        """Kills the first process of Ray's that measures."""
        end = time.monotonic() + 60
        while time.monotonic() < end and not killed:
            time.sleep(0.05)
            if not os.path.isdir(folder) or not os.listdir(folder):
                continue
            for pid in filter(str.isdigit, os.listdir("/proc")):
                try:
                    with open(f"/proc/{pid}/cmdline", "rb") as stream:
                        name = stream.read()
                except OSError:
                    continue
                if name.startswith(b"ray::measure_shard"):
                    os.kill(int(pid), signal.SIGKILL)
                    killed.append(pid)
                    break


if __name__ == "__main__":
    unittest.main()
