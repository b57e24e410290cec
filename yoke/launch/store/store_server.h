// yoke/launch/store/store_server.h -- the process that serves the ranks' TCPStore.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>

#include "yoke/base/file.h"

namespace yoke::launch {

/// What the store reports to the process that started it, each at most once for a user.
struct StoreReport {
  enum class Kind : int32_t {
    kRefusedUser,  ///< value: a user of this host whose connection was closed.
    kFull,         ///< value: the limit in bytes. A client was refused, because the store has reached it.
  };
  Kind kind = Kind::kRefusedUser;
  int64_t value = 0;
};

struct StoreRules {
  /// Whether processes of this host that belong to a user may use the store. Empty: everybody may. Connections from
  /// elsewhere are accepted, because nobody here knows whose they are.
  std::function<bool(uid_t)> may_use;
  int64_t limit_bytes = int64_t{256} << 20;  ///< Of all that it keeps for clients.
  UniqueFd reports;                          ///< A pipe for StoreReport; empty: none.
};

/// Serves the store until `end` ends. Then, and at an error that it cannot handle, ends this process.
/// REQUIRES: the caller is a new fork with one thread; `listener` is bound to a port of TCP and listens.
[[noreturn]] void serve_store(UniqueFd listener, UniqueFd end, StoreRules rules = {});

}  // namespace yoke::launch
