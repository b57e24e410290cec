#include "yoke/profile/trace_reader.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/profile/json_cursor.h"

namespace yoke::profile {
namespace {

constexpr size_t kPiece = 256 << 10;                       // fits into a processor's L2 cache
constexpr size_t kMaxValue = 64 << 20;                     // in real traces, no event or other member is longer
constexpr int64_t kMaxDurationNs = 1'000'000'000'000'000;  // 11 days; sums of thousands still fit in int64

std::string_view without_quotes(std::string_view value) {
  return value.size() >= 2 && value.front() == '"' ? value.substr(1, value.size() - 2) : value;
}

/// The number of elements of the first shape in "[[64, 10], ...]"; 1 of a scalar, "[[]]"; 0 if there is none.
int64_t num_elements(std::string_view shapes) {
  JsonCursor cursor(shapes);
  if (!cursor.take('[') || !cursor.take('[')) return 0;
  int64_t product = 1;
  while (!cursor.take(']')) {
    const auto text = cursor.value();
    const auto size = text ? parse_int(*text) : std::nullopt;
    if (!size || *size < 0 || (*size > 0 && product > (int64_t{1} << 36) / *size)) return 0;
    product *= *size;
    cursor.take(',');
  }
  return product;
}

/// Numbers strings from 0. Equal strings have the same number.
struct Numbers : std::unordered_map<std::string, uint32_t> {
  auto of(const std::string& text) { return try_emplace(text, static_cast<uint32_t>(size())); }
};

/// An event as texts of the file. The texts are views of the reader's buffer.
struct RawEvent {
  std::string_view phase, category, name, pid, tid, start, duration, args;
};
constexpr std::pair<std::string_view, std::string_view RawEvent::*> kMembers[] = {
    {"ph", &RawEvent::phase}, {"cat", &RawEvent::category}, {"name", &RawEvent::name},    {"pid", &RawEvent::pid},
    {"tid", &RawEvent::tid},  {"ts", &RawEvent::start},     {"dur", &RawEvent::duration}, {"args", &RawEvent::args}};

/// Converts complete events (X) and pairs of begin and end (B, E) to a trace's events. Other events have no duration.
class EventCollector {
 public:
  explicit EventCollector(Trace& trace) : trace_(trace) {}

  void add(const RawEvent& raw) {
    if (raw.phase == "E") {
      end(raw);
    } else if (raw.phase == "X" || raw.phase == "B") {
      begin(raw, raw.phase == "X");
    }
  }

  /// Counts each begin (B) without an end as an event without a duration.
  void finish() {
    for (const auto& [track, events] : open_) trace_.num_without_duration += static_cast<int64_t>(events.size());
  }

 private:
  void begin(const RawEvent& raw, bool is_complete) {
    const auto name = number_of_name(raw);
    if (is_complete && trace_.names[name].kind == Kind::kIgnored) return;
    const auto start = parse_microseconds(raw.start);
    const auto duration = is_complete ? parse_microseconds(raw.duration) : 0;
    if (!start || *start < 0 || !duration || *duration < 0 || *duration > kMaxDurationNs) {
      ++trace_.num_without_duration;
    } else if (is_complete) {
      trace_.events.push_back({*start, *duration, name, track(raw)});
      if (raw.name == "torch::autograd::AccumulateGrad") add_gradient(raw.args, *start, *duration);
    } else {
      open_[track(raw)].push_back({*start, 0, name, track(raw)});
    }
  }

  void end(const RawEvent& raw) {
    const auto found = open_.find(track(raw));
    const auto time = parse_microseconds(raw.start);
    if (found == open_.end() || found->second.empty() || !time) {
      ++trace_.num_without_duration;
      return;
    }
    auto event = found->second.back();
    found->second.pop_back();
    event.duration_ns = *time - event.start_ns;
    if (event.duration_ns < 0 || event.duration_ns > kMaxDurationNs) {
      ++trace_.num_without_duration;
    } else if (trace_.names[event.name].kind != Kind::kIgnored)
      trace_.events.push_back(event);
  }

  uint32_t number_of_name(const RawEvent& raw) {
    key_.assign(raw.category).append(1, '\n').append(raw.name);
    if (raw.category == "kernel" && raw.name.find("ccl") != raw.name.npos) add_group(raw.args);
    const auto [found, is_new] = names_.of(key_);
    if (is_new) trace_.names.push_back(classify(raw.category, unescape(key_.substr(raw.category.size() + 1))));
    return found->second;
  }

  /// Adds the process group to the key. Kernels of different groups have the same name, but are different collectives.
  void add_group(std::string_view args) {
    JsonCursor cursor(args);
    cursor.object([&](std::string_view key) {
      const auto value = cursor.value();
      if (value && (key == "Process Group Name" || key == "Process Group Ranks")) {
        key_.append(1, ' ').append(without_quotes(*value));
      }
      return value.has_value();
    });
  }

  /// Adds the gradient that the node of autograd got: "Input Dims": [[64, 10]], "Input type": ["float"].
  void add_gradient(std::string_view args, int64_t start_ns, int64_t duration_ns) {
    GradientEvent gradient{.start_ns = start_ns, .duration_ns = duration_ns};
    JsonCursor cursor(args);
    cursor.object([&](std::string_view key) {
      const auto value = cursor.value();
      const auto has = [&](std::string_view part) { return value->find(part) != value->npos; };
      if (value && key == "Input Dims") gradient.num_elements = num_elements(*value);
      if (value && key == "Input type" && (has("Half") || has("BFloat16"))) gradient.element_bytes = 2;
      if (value && key == "Input type" && has("double")) gradient.element_bytes = 8;
      return value.has_value();
    });
    if (gradient.num_elements > 0) trace_.gradients.push_back(gradient);
  }

  uint32_t track(const RawEvent& raw) {
    key_.assign(raw.pid).append(1, '\n').append(raw.tid);
    return tracks_.of(key_).first->second;
  }

  Trace& trace_;
  Numbers names_, tracks_;
  std::string key_;
  std::unordered_map<uint32_t, std::vector<Event>> open_;
};

class Reader {
 public:
  Reader(const ReadBytes& read, Trace& trace) : read_(read), trace_(trace), collector_(trace) {}

  void run() {
    char first = 0;
    next([&](JsonCursor& cursor) { return (first = cursor.peek()) != 0; });
    trace_.is_truncated = first == '[' ? !read_events() : first != '{' || !read_members();
    collector_.finish();
  }

 private:
  /// Calls `take` with the remaining text. While `take` returns false, reads more text and calls it again. Returns
  /// false at the end of the file.
  template <class Take>
  bool next(const Take& take) {
    while (true) {
      JsonCursor cursor({buffer_.data() + begin_, size_ - begin_});
      if (take(cursor)) {
        begin_ = static_cast<size_t>(cursor.position() - buffer_.data());
        return true;
      }
      if (!refill()) return false;
    }
  }

  bool refill() {
    buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(begin_));
    size_ -= begin_;
    begin_ = 0;
    if (size_ >= kMaxValue) return false;
    buffer_.resize(std::max(2 * size_, kPiece));
    const auto num_read = read_({buffer_.data() + size_, buffer_.size() - size_});
    size_ += num_read;
    return num_read > 0;
  }

  bool read_members() {
    next([](JsonCursor& cursor) { return cursor.take('{'); });
    while (true) {
      std::string key;
      char first = 0;  // first character of the value; '}' after the last member
      const bool is_there = next([&](JsonCursor& cursor) {
        cursor.take(',');
        if ((first = cursor.peek()) == '}') return cursor.take('}');
        const auto name = cursor.string();
        if (!name || !cursor.take(':')) return false;
        key = *name;
        return (first = cursor.peek()) != 0;
      });
      if (!is_there || (first == '}' && key.empty())) return is_there;
      const bool is_read = key == "traceEvents" && first == '[' ? read_events() : next([&](JsonCursor& cursor) {
        const auto value = cursor.value();
        if (value) read_member(key, *value);
        return value.has_value();
      });
      if (!is_read) return false;
    }
  }

  void read_member(std::string_view member, std::string_view text) {
    const struct {
      std::string_view member, key;
      std::optional<int64_t>& value;
    } numbers[] = {{"distributedInfo", "rank", trace_.rank},
                   {"distributedInfo", "world_size", trace_.world_size},
                   {"host", "num_threads", trace_.host.num_threads},
                   {"host", "num_cpus", trace_.host.num_cpus},
                   {"host", "memory_stall_us", trace_.host.memory_stall_us},
                   {"host", "has_operations", trace_.host.has_operations}};
    JsonCursor cursor(text);
    cursor.object([&](std::string_view key) {
      const auto value = cursor.value();
      for (const auto& number : numbers) {
        if (value && number.member == member && number.key == key) number.value = parse_int(*value);
      }
      return value.has_value();
    });
  }

  bool read_events() {
    next([](JsonCursor& cursor) { return cursor.take('['); });
    for (bool is_end = false; !is_end;) {
      const bool is_there = next([&](JsonCursor& cursor) {
        while (cursor.take(',')) {
        }
        is_end = cursor.take(']');
        return is_end || read_event(cursor);
      });
      if (!is_there) return false;
    }
    return true;
  }

  bool read_event(JsonCursor& cursor) {
    auto attempt = cursor;
    RawEvent raw;
    const bool is_event = attempt.object([&](std::string_view key) {
      const auto value = attempt.value();
      if (!value) return false;
      for (const auto& [name, member] : kMembers) {
        if (key == name) raw.*member = without_quotes(*value);
      }
      return true;
    });
    if (is_event) {
      collector_.add(raw);
      cursor = attempt;
      return true;
    }
    if (attempt.is_short()) return false;  // its end is not in the buffer yet
    const auto whole = cursor.value();     // the event is malformed
    if (!whole) return false;
    if (whole->empty()) return cursor.take('}') || cursor.take(':');  // skips characters that cannot begin a value
    ++trace_.num_without_duration;
    return true;
  }

  const ReadBytes& read_;
  Trace& trace_;
  EventCollector collector_;
  std::vector<char> buffer_;
  size_t begin_ = 0, size_ = 0;
};

}  // namespace

Trace read_trace(const ReadBytes& read, const std::string& path) {
  Trace trace{.path = path};
  Reader(read, trace).run();
  if (trace.events.empty()) {
    throw Error(ErrorCode::kDataLoss,
                "{}: found no events of PyTorch's profiler in it{}; give a file that export_chrome_trace or "
                "tensorboard_trace_handler wrote; --compare takes what `yoke profile --json` printed and folders of a "
                "train::Run, too",
                path, trace.is_truncated ? ", and it is not complete JSON" : "");
  }
  if (trace.world_size == 1) {
    for (auto& name : trace.names) name.kind = kind_without_other_ranks(name.kind);
  }
  return trace;
}

}  // namespace yoke::profile
