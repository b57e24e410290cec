// yoke/launch/plan/streams.h -- chooses output streams by rank, in torchrun's form: "3", "0:1,1:2".
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

  /// Parses "0" (none), "1" (standard output), "2" (standard error) or "3" (both) for all local ranks, or "RANK:N,..."
  /// for some of them.
  /// Errors  kInvalidArgument if the text has a different form.
  explicit StreamChoice(std::string_view text);

  Streams of(int64_t local_rank) const;
  bool is_empty() const;  ///< Whether no stream is chosen.

 private:
  Streams all_;
  std::map<int64_t, Streams> by_local_rank_;
};

}  // namespace yoke::launch
