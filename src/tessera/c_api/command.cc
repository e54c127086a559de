// The commands of the command line.
#include "tessera/commands/commands.h"

#include "tessera/c_api/callbacks_internal.h"
#include "tessera/commands/table.h"

namespace tessera::c_api {

#pragma GCC visibility push(default)
extern "C" {

tsr_status_t tsr_command(const char* name, const char* options, const tsr_callbacks_t* callbacks,
                         int* exit_code, char** json) {
  return guarded([&] {
    result_of(json, "JSON");
    const Callbacks calls(callbacks);
    const commands::CommandResult result = commands::run_command(
        text_of(name, "command's name"), text_or_empty(options),
        {.progress = [&](std::string_view label, std::size_t done, std::size_t total,
                         std::string_view what) { calls.progress(label, done, total, what); },
         .stop = [&] { return calls.wants_stop(); }});
    *json = copy_of(result.json);
    if (exit_code != nullptr) *exit_code = result.status;
  });
}

tsr_status_t tsr_commands(char** json) {
  return guarded([&] {
    Json rows = Json::array();
    for (const commands::Command& command : commands::library_commands()) {
      rows.push_back(
          {{"name", command.name}, {"summary", command.summary}, {"example", command.example}});
    }
    result_of(json, "JSON");
    *json = json_copy({{"commands", rows}});
  });
}

}  // extern "C"
#pragma GCC visibility pop

}  // namespace tessera::c_api
