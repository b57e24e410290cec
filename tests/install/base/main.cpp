// A program outside the repository that uses only the part of yoke without libtorch.
#include <cstdio>

#include "yoke/base/hostlist.h"

int main() {
  const auto hosts = yoke::expand_hostlist("n[1-2]");
  std::printf("%s %s\n", hosts.at(0).c_str(), hosts.at(1).c_str());
  return hosts.size() == 2 ? 0 : 1;
}
