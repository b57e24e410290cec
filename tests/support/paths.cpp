#include "tests/support/paths.h"

namespace yoke::test {

std::string reference(const std::string& name) { return YOKE_REFERENCE_FOLDER "/" + name; }

}  // namespace yoke::test
