// tests/support/paths.h -- paths of files that tests read.
#pragma once

#include <string>

namespace yoke::test {

/// Returns the path of tests/reference/NAME. (The path of the checkout is not a macro on every compiler command line,
/// because then other checkouts could not share the compiler cache.)
std::string reference(const std::string& name);

}  // namespace yoke::test
