// Arrow is large and not installed everywhere. So only the plug-in links it, and the plug-in is
// loaded at its first use.
#include "tessera/measure/parquet.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/text.h"
#include "tessera/jit/worker_program.h"
#include "tessera/measure/sweep_exchange.h"

namespace tessera::measure {
namespace {

constexpr const char* kPluginFile = "libtessera_parquet.so";

std::vector<fs::path> plugin_places() {
  if (const std::string own = environment("TESSERA_PARQUET"); !own.empty()) return {own};
  std::vector<fs::path> places;
  for (const fs::path& worker : jit::worker_places("")) {
    places.push_back((worker.parent_path() / kPluginFile).lexically_normal());
  }
  return places;
}

// The plug-in stays loaded, because Arrow starts threads.
const ParquetPlugin& plugin() {
  std::vector<std::string> tried;
  for (const fs::path& place : plugin_places()) {
    void* const library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    void* const found = library == nullptr ? nullptr : dlsym(library, kParquetSymbol);
    if (found != nullptr) return *static_cast<const ParquetPlugin*>(found);
    const char* const reason = dlerror();
    tried.push_back(reason != nullptr ? reason : place.string());
  }
  throw Error(
      ErrorCode::unsupported,
      fmt::format("parquet: the plug-in {} cannot be loaded ({}): it is built where a Python has "
                  "pyarrow: './dev setup' and './dev build' in Tessera's source, or 'pip install "
                  "pyarrow' and configure and build Tessera again, or use a .csv file instead",
                  kPluginFile, join(tried, "; ")));
}

}  // namespace

void write_parquet(const ColumnTable& table, const fs::path& file) {
  std::string bytes;
  const std::string error = plugin().write(table, bytes);
  if (error.empty()) return write_file_atomic(file, bytes);
  throw Error(ErrorCode::io_error, fmt::format("'{}' cannot be written: {}", file.string(), error));
}

ColumnTable read_parquet(const fs::path& file) {
  ColumnTable table;
  const std::string error = plugin().read(file.string(), table);
  if (error.empty()) return table;
  throw Error(ErrorCode::parse_error, fmt::format("'{}' cannot be read: {}", file.string(), error));
}

}  // namespace tessera::measure
