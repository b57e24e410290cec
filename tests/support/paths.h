// tests/support/paths.h -- paths of files that tests read.
#pragma once

#include <string>

namespace yoke::test {

/// The path of tests/reference/NAME, with recorded figures of a peer. (A macro with the path of the checkout on each
/// command line would keep other checkouts from sharing the compiler cache.)
std::string reference(const std::string& name);

}  // namespace yoke::test
