// A header of the user of guardrails_program.cpp, whose functions are compiled into that which fails.
#pragma once

#include <cstdint>
#include <string>

struct Choice {
  std::string kind;
  int64_t dim = -1;

  static Choice& get() {
    static Choice choice{.kind = "positions", .dim = 1};
    return choice;
  }
  bool is(const char* which, int64_t num_dims) const { return kind == which && dim == num_dims; }
};
