// yoke/launch/store/store_server.h -- the process that serves the ranks' TCPStore.
#pragma once

#include "yoke/base/file.h"

namespace yoke::launch {

/// Serves the store until `end` ends. Then, and at an error that it cannot handle, ends this process.
/// REQUIRES: the caller is a new fork with one thread; `listener` is bound to a port of TCP and listens.
[[noreturn]] void serve_store(UniqueFd listener, UniqueFd end);

}  // namespace yoke::launch
