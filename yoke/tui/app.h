// yoke/tui/app.h -- the live page: hands events to update(), pages to the terminal, requests to the system.
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

/// Shows `source` until the user leaves. Returns the exit status: 128 + the signal that ended it, else 0. The terminal
/// is given back first of all; then the sample that is being taken is waited for.
int run(device::Source& source, std::unique_ptr<Terminal> terminal, Glyphs glyphs, const AppOptions& options);

/// One page as text, `width` columns.
std::string print_once(device::Source& source, const SamplerOptions& options, Glyphs glyphs, int64_t width);

}  // namespace yoke::tui
