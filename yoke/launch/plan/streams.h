// yoke/launch/plan/streams.h -- which output streams of which ranks: torchrun's "3" and "0:1,1:2".
#pragma once

#include <cstdint>
#include <map>
#include <string_view>

namespace yoke::launch {

struct Streams {
  bool out = false;
  bool err = false;

  bool operator==(const Streams&) const = default;
};

class StreamChoice {
 public:
  StreamChoice() = default;

  /// "0" none, "1" standard output, "2" standard error, "3" both; for all local ranks, or "RANK:N,..." for some.
  /// Errors  kInvalidArgument.
  explicit StreamChoice(std::string_view text);

  Streams of(int64_t local_rank) const;
  bool is_empty() const;  ///< None of any rank.

 private:
  Streams all_;
  std::map<int64_t, Streams> by_local_rank_;
};

}  // namespace yoke::launch
