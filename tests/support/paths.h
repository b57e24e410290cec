// tests/support/paths.h -- where the files of the tests are.
#pragma once

#include <string>

namespace yoke::test {

/// tests/reference/NAME: recorded figures of a peer. (Not a macro on each command line: with the path of the checkout
/// in it, no other checkout could use what the compiler's cache has.)
std::string reference(const std::string& name);

}  // namespace yoke::test
