// yoke/dist/shared/rendezvous.h -- passes the memory from one rank to the others, if they are on its host.
//
// A descriptor can be passed only between processes of one kernel, so a rank that has got it and has mapped it is on
// the same host. Nothing else is asked: no host name, no rank number of a launcher.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "yoke/base/clock.h"
#include "yoke/base/file.h"

namespace yoke::dist::shared {

/// The side of the rank that has made the memory. It listens on an abstract Unix socket, so no file remains.
class Door {
 public:
  /// Errors  as errno says: the kernel gives no socket.
  Door();

  /// For join(): the name of the socket, which every process of the host can see, and a secret.
  const std::string& address() const { return address_; }

  struct Guests {
    int64_t count = 0;                    ///< The other ranks.
    std::function<int64_t()> num_absent;  ///< How many of them have said elsewhere that they will not come.
    Clock::time_point until;
  };
  /// Passes `file` to ranks of the same user that know the secret, and tells them whether all ranks have it.
  /// Returns  whether all ranks have it.
  /// Errors  std::runtime_error: not all ranks have said something by then.
  bool pass(const UniqueFd& file, const Guests& guests);

 private:
  UniqueFd listener_;
  std::string address_, secret_;
};

/// kAbsent: this rank is on another host, or may not connect; the Door does not know that.
enum class Joined { kAll, kNotAll, kAbsent };

/// The side of the other ranks. `use` gets the descriptor; if it throws, the result is kNotAll on all ranks.
/// Errors  std::runtime_error: the rank at the Door has ended, or does not answer by then.
Joined join(const std::string& address, const std::function<void(const UniqueFd&)>& use, Clock::time_point until);

}  // namespace yoke::dist::shared
