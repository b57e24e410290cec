// yoke/profile/trace_reader.h -- reads the events of a trace of Kineto, or of any other trace in Chrome's format.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "yoke/profile/trace.h"

namespace yoke::profile {

/// Fills `buffer` and returns how many bytes it wrote; 0: there are no more.
using ReadBytes = std::function<size_t(std::span<char> buffer)>;

/// Reads the text in pieces, so it needs memory only for the events, about a tenth of the text. `path` is for messages.
/// Errors  kDataLoss: the text has no events or is not JSON. Also what `read` throws.
Trace read_trace(const ReadBytes& read, const std::string& path);

}  // namespace yoke::profile
