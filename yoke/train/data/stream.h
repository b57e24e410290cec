// yoke/train/data/stream.h -- sources of unknown size, which are read from the beginning to the end.
//
//     struct Lines {                                        // a stream is a type with open(); each pass opens it again
//       struct Reader {
//         std::ifstream file;
//         std::optional<std::string> next() {
//           std::string line;
//           return std::getline(file, line) ? std::optional(line) : std::nullopt;
//         }
//       };
//       Reader open(int64_t pass) const { return {std::ifstream(path)}; }
//       at::Tensor sample(const std::string& line, SampleRandom& random) const { ... }
//       std::string path;
//     };
//     Loader loader(Lines{"train.txt"}, world, {.batch_size = 64, .num_workers = 4}, Pad());
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "yoke/train/data/sample_random.h"

namespace yoke::train {

/// A source that is read in order. `open(pass)` returns a reader of pass number `pass` (0, 1, ...). The reader's
/// `next()` returns the items one by one as std::optional, and std::nullopt at the end. A reader may also have `int64_t
/// skip(int64_t count)`, which skips items without reading them and returns the number skipped. With skip(), resuming
/// an epoch is faster.
///
/// Samples  if the stream has `sample(item)` or `sample(item, random)`, this function makes a sample from each item;
///          otherwise the items are the samples.
/// Threads  one thread at a time reads items. Workers call `sample` in parallel, so expensive work belongs there.
/// Ranks    each rank reads the whole stream, but makes samples only from its share. All ranks must read the same
///          items.
template <class Source>
concept Stream = requires(const Source& source, int64_t pass) {
  source.open(pass).next();
};

namespace detail {

/// An item of any type; only the stream knows the type.
using StreamItem = std::shared_ptr<void>;

/// One pass over a stream.
class StreamPass {
 public:
  virtual ~StreamPass() = default;
  virtual StreamItem next() = 0;            ///< Null at the end.
  virtual int64_t skip(int64_t count) = 0;  ///< Returns how many were skipped: below `count` only at the end.
};
using OpenStream = std::function<std::unique_ptr<StreamPass>(int64_t pass)>;

template <class Source>
using StreamReaderOf = decltype(std::declval<const Source&>().open(0));
template <class Source>
using StreamItemOf = typename decltype(std::declval<StreamReaderOf<Source>&>().next())::value_type;

template <class Source>
class StreamPassOf : public StreamPass {
 public:
  StreamPassOf(const Source& source, int64_t pass) : reader_(source.open(pass)) {}

  StreamItem next() override {
    auto item = reader_.next();
    return item ? std::make_shared<StreamItemOf<Source>>(std::move(*item)) : nullptr;
  }

  int64_t skip(int64_t count) override {
    if constexpr (requires {
                    { reader_.skip(count) } -> std::convertible_to<int64_t>;
                  }) {
      return reader_.skip(count);
    } else {
      int64_t num_skipped = 0;
      while (num_skipped < count && reader_.next()) ++num_skipped;
      return num_skipped;
    }
  }

 private:
  StreamReaderOf<Source> reader_;
};

template <class Source>
auto stream_sample(const Source& source, const StreamItemOf<Source>& item, SampleRandom& random) {
  if constexpr (requires { source.sample(item, random); }) {
    return source.sample(item, random);
  } else if constexpr (requires { source.sample(item); }) {
    return source.sample(item);
  } else {
    return StreamItemOf<Source>(item);
  }
}

}  // namespace detail
}  // namespace yoke::train
