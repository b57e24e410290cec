#include "yoke/train/warn.h"

#include <cstdio>

namespace yoke::train {

void warn_on_stderr(const std::string& message) { std::fprintf(stderr, "warning: %s\n", message.c_str()); }

}  // namespace yoke::train
