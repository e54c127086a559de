#include "tessera/commands/table.h"

#include <CLI/CLI.hpp>
#include <array>

#include "tessera/commands/options.h"

namespace tessera::commands {
namespace {

constexpr std::array kCommands = {
    Command{"run", "choose, build and run kernels for problems",
            "tessera run gemm m=128 n=3072 k=768 dtype=bf16 epilogue=bias+gelu --verify",
            declare_run},
    Command{"explain", "say which kernel is chosen, and why each other one is not",
            "tessera explain gemm m=4096 n=4096 k=64 dtype=bf16 --target sm90a", declare_explain},
    Command{"list", "list kernels, preselected sets or element types",
            "tessera list --datatype bf16 --layout rcr --tile 128x*x64 --target sm90a",
            declare_list},
    Command{"show", "show what a kernel's name says, or the source it stands for",
            "tessera show gemm_fp32_rrr_packb_240x480x256_1x1x1_12x32x1_avx512 --source",
            declare_show},
    Command{"generate", "write kernel sources and their index into a folder",
            "tessera generate --op gemm --datatype fp16 --layout rcr --target avx512 "
            "--preselected fp16_rcr_essential --output-dir kernels --jobs 4",
            declare_generate},
    Command{"export", "write built kernels of AMD GPUs as data for hipDNN (experimental)",
            "tessera export --target gfx942 --preselected fp16_rcr_essential --hipdnn kernels",
            declare_export},
    Command{"verify", "build kernels and compare their results with the fp64 reference",
            "tessera verify --preselected fp32_rcr_essential", declare_verify},
    Command{
        "sweep", "measure kernels on problems into a store, to learn from",
        "tessera sweep --problems square --kernels 'gemm_fp32_rrr_packb_*' --store sweep.sqlite "
        "--budget 10m",
        declare_sweep},
    Command{"data", "describe, check, merge, export or import what sweeps measured",
            "tessera data merge all.sqlite part1.sqlite part2.sqlite", declare_data},
    Command{"train", "make a model of what sweeps measured",
            "tessera train --data sweep.sqlite --dtype bf16 --output model", declare_train},
    Command{"evaluate", "say how good a model's choices are, or whether it may replace another",
            "tessera evaluate --model model --data sweep.sqlite --unseen --by shape",
            declare_evaluate},
    Command{"predict", "say what a model thinks of a problem's kernels",
            "tessera predict --model model gemm m=128 n=3072 k=768 --top 3", declare_predict},
    Command{"search", "search all legal kernels for a problem, and measure the best found",
            "tessera search gemm m=512 n=512 k=512 --strategy evolution --budget 200 --top 5",
            declare_search},
    Command{"tune", "measure problems on this machine and let the winners be chosen",
            "tessera tune --budget 30m --dtype fp32,bf16", declare_tune},
    Command{"report", "write a page for a browser about how well a model chooses",
            "tessera report --data sweep.sqlite --model models/avx512_fp32 --output page.html",
            declare_report},
    Command{"cache", "list, verify, clear or weigh the kernel cache",
            "tessera cache clear --pattern 'gemm_fp32_*'", declare_cache},
    Command{"record", "show, merge, explain or report what a model asked while it was recorded",
            "TESSERA_RECORD=model.record python3 serve.py; tessera record show model.record",
            declare_record},
    Command{"pack", "write built kernels into one portable file, or list such a file",
            "tessera pack --preselected fp32_rcr_essential --output kernels.pack", declare_pack},
    Command{"problems", "print a frozen list of problems to learn from, as a shape file",
            "tessera problems wide --target avx512 --unseen", declare_problems},
    Command{"targets", "list the machines that kernels can be made for, or show one",
            "tessera targets avx512", declare_targets},
    Command{"doctor", "say what was found on this machine, what is missing and how to get it",
            "tessera doctor", declare_doctor},
    Command{"version", "print the versions of the library, its models, packs and compilers",
            "tessera version", declare_version},
};

}  // namespace

std::span<const Command> library_commands() { return kCommands; }

Action declare(const Command& command, CLI::App& app) {
  Action action = command.declare(app);
  for (CLI::Option* option : app.get_options()) option->check(check_not_empty);
  return action;
}

}  // namespace tessera::commands
