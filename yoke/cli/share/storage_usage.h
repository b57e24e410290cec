// yoke/cli/share/storage_usage.h -- `yoke storage usage`: what fills a folder.
#pragma once

#include "yoke/cli/command.h"

namespace yoke::cli {

void add_storage_usage(CLI::App& cmd, Context& context);

}  // namespace yoke::cli
