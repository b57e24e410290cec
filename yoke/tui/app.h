// yoke/tui/app.h -- the interactive page: passes events to update(), pages to the terminal and requests to the system.
#pragma once

#include <memory>
#include <string>

#include "yoke/base/environment.h"
#include "yoke/device/source.h"
#include "yoke/tui/sampler.h"
#include "yoke/tui/terminal.h"

namespace yoke::tui {

struct AppOptions {
  SamplerOptions sampling = {};
  bool is_readonly = false;
};

/// Shows `source` until the user quits. Returns the exit status: 0, or 128 plus the number of the signal that ended it.
/// Restores the terminal first, and then waits for the sample that is being taken.
int run(device::Source& source, std::unique_ptr<Terminal> terminal, Glyphs glyphs, const AppOptions& options);

/// Returns one page as text of `width` columns.
std::string print_once(device::Source& source, const SamplerOptions& options, Glyphs glyphs, int64_t width);

}  // namespace yoke::tui
