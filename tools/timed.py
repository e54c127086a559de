#!/usr/bin/env python3
"""Runs a command and holds the time it takes against a budget: SECTION COMMAND...

    timed.py SECTION COMMAND...                  exits with the command's status, or 1 if too slow
    timed.py --programs BUILD JUNIT              prints how long each test program of a ctest took

What counts is processor time, of the command and of all that it started, halved: the seconds that
two processors take. So neither other work on the machine nor more processors change the verdict.
How fast a processor is, is measured by compiling one fixed text before and after the command.
"""
import collections
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

# Seconds on two processors; see REFERENCE for how fast they are.
BUDGETS = {
    "library": 150,  # compiling the library, the command line and the worker
    "tests": 195,    # compiling the test programs and examples
    "kernels": 130,  # building the kernels that are shipped, of GPUs a sample
    # Running the tests of this family, on the emulator of AMD's GPUs too. Groups, scales, gates,
    # rows by index and contractions compile kernels of their own for each target.
    "gemm": 200,
    "norm": 26,
    "conv": 60,
    "fmha": 108,
    "route": 20,
    "stages": 310,   # running all other tests, and compiling what counts the lines of a call
    "python": 110,   # making the wheel, installing it thrice, its tests and examples
    "compat": 69,    # the interfaces of compat/ from Python
    "lint": 100,     # where every folder differs; clang-tidy over a few takes a tenth
}
MOST = 1.5  # times the budget: more is a failure
# Processor seconds of compiling TEXT where the budgets were measured: a virtual machine of two
# processors, an Intel Xeon (Emerald Rapids), with both at work.
REFERENCE = 0.84
TEXT = """#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>
std::string longest(const std::map<int, std::vector<std::string>>& lists) {
  std::map<std::string, std::function<int(int)>> seen;
  for (const auto& [key, words] : lists) {
    for (const std::string& word : words) seen.emplace(word, [key](int x) { return x + key; });
  }
  std::vector<std::string> all;
  for (const auto& [word, f] : seen) all.push_back(word + std::to_string(f(1)));
  std::sort(all.begin(), all.end(), [](auto& a, auto& b) { return a.size() > b.size(); });
  return all.empty() ? "" : all.front();
}
"""


def spent():
    """Processor seconds of all children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def calibrate():
    """How many times longer than on the machine of the budgets a compilation takes here."""
    command = [os.environ.get("CXX", "c++"), "-std=c++20", "-O1", "-x", "c++", "-c", "-"]
    begin = spent()
    with tempfile.TemporaryDirectory() as folder:
        children = [subprocess.Popen([*command, "-o", f"{folder}/{i}.o"], stdin=subprocess.PIPE)
                    for i in range(2)]
        for child in children:
            child.communicate(TEXT.encode())
    if any(child.returncode != 0 for child in children):
        sys.exit(f"budget: cannot measure this machine: '{' '.join(command)}' failed")
    return (spent() - begin) / 2 / REFERENCE


def run(section, command):
    budget = BUDGETS[section]
    before = calibrate()
    begin, clock = spent(), time.monotonic()
    status = subprocess.run(command, check=False).returncode
    seconds, wall = (spent() - begin) / 2, time.monotonic() - clock
    # A machine that compiles faster need not run kernels faster, so it gets no smaller budgets.
    scale = max(1.0, before, calibrate())
    print(f"budget: {section}: {seconds / scale:.0f} of {budget} s (measured {seconds:.0f} s on 2 "
          f"processors, {wall:.0f} s by the clock; this machine takes {scale:.2f} times as long)",
          flush=True)
    if status == 0 and seconds / scale > MOST * budget:
        print(f"budget: {section} took more than {MOST} times its {budget} s; make it faster, or "
              "raise the budget in tools/timed.py and say why", file=sys.stderr)
        return 1
    return status


def programs(build, junit):
    """Wall seconds per test program, the longest first, and the five slowest tests."""
    listed = json.loads(subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"],
                                       check=True, capture_output=True, text=True).stdout)
    program_of = {test["name"]: os.path.basename(test["command"][0])
                  for test in listed["tests"] if "command" in test}
    total, count, slowest = collections.Counter(), collections.Counter(), []
    for case in xml.etree.ElementTree.parse(junit).getroot().iter("testcase"):
        # ctest adds the parameter of a test to the name that it shows.
        name = re.sub(r"  # GetParam\(\) = .*", "", case.get("name"))
        program = program_of.get(case.get("name"), program_of.get(name, "other"))
        total[program] += float(case.get("time"))
        count[program] += 1
        slowest.append((float(case.get("time")), case.get("name")))
    for program, seconds in total.most_common():
        print(f"{seconds:7.1f} s  {program}, {count[program]} tests")
    for seconds, name in sorted(slowest, reverse=True)[:5]:
        print(f"slowest: {seconds:.1f} s  {name}")
    return 0


def main(arguments):
    if len(arguments) == 3 and arguments[0] == "--programs":
        return programs(*arguments[1:])
    if len(arguments) < 2 or arguments[0] not in BUDGETS:
        print(__doc__, f"Sections: {', '.join(BUDGETS)}", sep="\n", file=sys.stderr)
        return 2
    return run(arguments[0], arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
