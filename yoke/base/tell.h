// yoke/base/tell.h -- how rooms that act say what happens meanwhile: by one callback. Results are returned instead.
#pragma once

#include <functional>
#include <string>

namespace yoke {

/// What a text is, or for whom.
enum class Told {
  kNews,       ///< What happens now.
  kWarning,    ///< What is wrong, though the work goes on.
  kReason,     ///< Why devices are given, or not (`yoke claim --explain`).
  kElsewhere,  ///< For the user's other terminals: whoever is to act may not look at this one.
  kOutput,     ///< What another program has printed, with its ends of line.
};

/// Gets sentences without an end of line, and kOutput as it was printed. Progress that each line replaces goes another
/// way (`on_progress`). It is called in the process that does the work, which may be a child of the
/// caller's. It must not throw, and must leave nothing in a buffer.
using Tell = std::function<void(Told, const std::string& text)>;

}  // namespace yoke
