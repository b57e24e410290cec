// yoke/profile/trace_reader.h -- reads the events of a Kineto trace, or of any other trace in Chrome's format.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "yoke/profile/trace.h"

namespace yoke::profile {

/// Fills `buffer` and returns the number of bytes written; 0 at the end.
using ReadBytes = std::function<size_t(std::span<char> buffer)>;

/// Reads the text in pieces, so it needs memory only for the events, about a tenth of the text. `path` is for messages.
/// Errors  kDataLoss: the text has no events or is not JSON. Also what `read` throws.
Trace read_trace(const ReadBytes& read, const std::string& path);

}  // namespace yoke::profile
