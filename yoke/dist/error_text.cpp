#include "yoke/dist/error_text.h"

#include <c10/util/Exception.h>

namespace yoke::dist {

std::string error_text(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  return of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
}

}  // namespace yoke::dist
