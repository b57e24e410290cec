// yoke/keep/claim_keeper.h -- keeps a claim while a program runs, a process lives, or a time lasts.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/base/file.h"
#include "yoke/claim/ledger.h"
#include "yoke/keep/use_watch.h"

namespace yoke::keep {

/// When a claim ends. It is measured by a clock that nobody sets; the text of the claim only says by how much
/// `yoke extend` has put it off.
class ClaimEnd {
 public:
  explicit ClaimEnd(const claim::Claim& claim);
  bool is_over();
  int milliseconds_left() const;  ///< For poll(): at most a minute, after which the claim shows that it still runs.

 private:
  const claim::Claim& claim_;
  std::optional<claim::Time> until_;
  std::chrono::steady_clock::time_point end_ = std::chrono::steady_clock::time_point::max();
};

/// Runs a program that inherits the claim, passes signals on to it, and gives the devices back when it ends. If this
/// process is killed, the program gets SIGTERM, and keeps the devices until it has ended. At Note::until the program
/// and all of its descendants get SIGTERM, and ten seconds later SIGKILL, and the devices are given back when all of
/// them have ended. The same happens if the site ends claims that are idle, with Note::is_forced, and, once the program
/// has ended, after SIGTERM to this process. What a program leaves behind that ends by itself does not keep the
/// devices. `started`: called once it has started. Returns  its exit status; 128 plus the signal's number if a signal
/// ended it, 127 or 126 if it could not be executed.
int keep_for_program(claim::Claim& claim, const std::vector<std::string>& argv, const Environment& environment,
                     const std::string& speaker, UseWatch& watch, const std::function<void()>& started = {});

/// Returns at Note::until, when `process` (a pidfd, if there is one) ends, at a signal that ends processes, or if the
/// site ends claims that are idle.
void keep_for_a_time(claim::Claim& claim, const UniqueFd& process, const std::string& speaker, UseWatch& watch);

}  // namespace yoke::keep
