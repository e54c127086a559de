// Giving a command its options as JSON.
#pragma once

#include "tessera/commands/console.h"

namespace CLI {
class App;
}

namespace tessera::commands {

// Gives the declared options of `app` the values of a JSON object, and reads them. Throws
// Error{invalid_argument} with the nearest name for an unknown option, and for a value that the
// option refuses.
void read_json_options(CLI::App& app, const Json& options);

}  // namespace tessera::commands
