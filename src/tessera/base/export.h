// What libtessera.so exports: the namespaces that are opened with TESSERA_API, as
// `namespace TESSERA_API tessera {`. The headers that tessera.hpp brings along open theirs so, and
// no others: tools/check_exports.py.
#pragma once

#define TESSERA_API [[gnu::visibility("default")]]

// On a type within them that the library alone knows.
#define TESSERA_HIDDEN [[gnu::visibility("hidden")]]
