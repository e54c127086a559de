// The project's files that are embedded in the library.
#pragma once

#include <span>
#include <string_view>

namespace tessera {

struct EmbeddedFile {
  std::string_view path;
  std::string_view content;
};

// The headers of device/, by the paths with which emitted code includes them.
std::span<const EmbeddedFile> cpu_headers();
std::span<const EmbeddedFile> cuda_headers();
std::span<const EmbeddedFile> hip_headers();

// The shipped target rows, targets/rows/*.json.
std::span<const EmbeddedFile> target_rows();

// The preselected kernel sets of every operation, <op>/sets/<backend>.json.
std::span<const EmbeddedFile> kernel_sets();

// The layers of published nets, data/nets/: convolutions.txt, experts.txt.
std::span<const EmbeddedFile> net_files();

// The report page's template, style and script, src/tessera/train/report/.
std::span<const EmbeddedFile> report_files();

// The shipped models, models/<op>_<target>_<types>[.<machine>]/{manifest.json,model.txt.gz}.
std::span<const EmbeddedFile> shipped_models();

}  // namespace tessera
