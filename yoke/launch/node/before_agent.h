// yoke/launch/node/before_agent.h -- why an agent did not begin, from what ssh and the shell there printed. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace yoke::launch {

struct BeforeAgent {
  std::vector<std::string> errors = {};  ///< Lines of standard error, of ssh and of the shell.
  std::string_view out = {};             ///< Standard output, of the shell alone. The last line may be a question.
  std::string end = {};                  ///< How the connection ended: "its connection was closed".
  bool was_silent = false;               ///< It did not end, but said nothing for too long.
};

/// Without control characters, for a message such as "cannot use host server: WHY". A host key that has changed is told
/// from one that is not known, with OpenSSH's line and what to do. Otherwise it is the last line that says something.
std::string why_no_agent(const BeforeAgent& before);

}  // namespace yoke::launch
