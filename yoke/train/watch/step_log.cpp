#include "yoke/train/watch/detail/step_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "yoke/base/error.h"
#include "yoke/base/json_text.h"
#include "yoke/train/watch/detail/event_file.h"
#include "yoke/train/watch/detail/read_figures.h"

namespace yoke::train::detail {
namespace {

/// Length of the complete lines at the beginning of `text` whose place is before `first`.
size_t length_before(std::string_view text, const StepPlace& first) {
  size_t begin = 0;
  for (size_t end = text.find('\n'); end != text.npos; begin = end + 1, end = text.find('\n', begin)) {
    const std::string head(text.substr(begin, std::min<size_t>(end - begin, 80)));
    StepPlace place;
    if (std::sscanf(head.c_str(), R"({"step": %ld, "epoch": %ld)", &place.step, &place.epoch) != 2) break;
    // A value that was logged between two epochs has the number of the next epoch's first step.
    if (place.step > first.step || (place.step == first.step && place.epoch >= first.epoch)) break;
  }
  return begin;
}

GrowingFile open_after(const std::filesystem::path& path, const StepPlace& first) {
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!fd) throw system_error(errno, "opening " + path.string());
  const auto length = static_cast<int64_t>(length_before(read_file(path), first));
  if (ftruncate(fd.value(), length) != 0 || lseek(fd.value(), length, SEEK_SET) < 0) {
    throw system_error(errno, "cutting off the later steps of " + path.string());
  }
  return {path, std::move(fd), length};
}

/// The shortest text that gives the same value; a float32 value gets the shortest text for float32.
std::string number_text(double value) {
  if (std::isnan(value)) return "\"NaN\"";
  if (std::isinf(value)) return value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  const auto narrow = static_cast<float>(value);
  return narrow == value ? fmt::format("{}", narrow) : fmt::format("{}", value);
}

}  // namespace

StepLog::StepLog(const std::filesystem::path& path, const StepPlace& first, const StepLogOptions& options)
    : file_(open_after(path, first)), options_(options) {}

StepLog::~StepLog() {
  try {
    flush();
  } catch (const std::exception& error) {
    fmt::print(stderr, "warning: the last values of steps are lost: {}\n", error.what());
  }
}

void StepLog::add(const StepPlace& place, const std::string& name, const at::Tensor& value) {
  pending_.push_back({place, wall_time(), name, waiting_scalar(name, value)});
  const bool is_late = Clock::now() - last_read_ >= options_.max_wait;
  // The values of one step are read together, so that they share a line.
  const bool begins_step = pending_.size() > 1 && pending_[pending_.size() - 2].place.step != place.step;
  if (begins_step && (is_late || std::ssize(pending_) > options_.max_pending)) {
    auto begun = std::move(pending_.back());
    pending_.pop_back();
    flush();
    pending_.push_back(std::move(begun));
  }
}

void StepLog::flush() {
  std::vector<at::Tensor> figures;
  for (const auto& value : pending_) figures.push_back(value.figure);
  const auto values = read_figures(figures);
  last_read_ = Clock::now();
  std::set<std::string> names;  // names that this line has already
  for (size_t i = 0; i < pending_.size(); ++i) {
    const auto& [place, time, name, figure] = pending_[i];
    const bool is_same_place =
        i > 0 && place.step == pending_[i - 1].place.step && place.epoch == pending_[i - 1].place.epoch;
    if (!is_same_place || names.contains(name)) {
      if (i > 0) file_.add("}\n");
      file_.add(fmt::format(R"({{"step": {}, "epoch": {}, "time": {:.3f})", place.step, place.epoch, time));
      names.clear();
    }
    names.insert(name);
    const auto key = json_line(nlohmann::json(name));
    file_.add(fmt::format(", {}: {}", key, number_text(values[i][0])));
  }
  if (!pending_.empty()) file_.add("}\n");
  pending_.clear();
  file_.flush();
}

}  // namespace yoke::train::detail
