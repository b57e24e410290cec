#include "yoke/train/run/detail/figures.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/dist/group.h"
#include "yoke/dist/odd_ranks.h"

namespace yoke::train {
namespace {

/// metrics.csv and steps.jsonl have columns of these names, by which `yoke curve` places the values.
constexpr std::array<std::string_view, 5> kReserved = {"epoch", "step", "time", "samples_per_second", "seconds"};

/// A rank has a value that is not finite, and does not know since when.
constexpr std::string_view kLongAgo = "?";

/// Whether the value is known not to be finite, without waiting for a device. This takes a few nanoseconds.
bool is_not_finite(const at::Tensor& value) {
  if (!value.is_cpu() || value.layout() != at::kStrided || value.numel() != 1) return false;
  switch (value.scalar_type()) {
    case at::kFloat: return !std::isfinite(*value.const_data_ptr<float>());
    case at::kDouble: return !std::isfinite(*value.const_data_ptr<double>());
    case at::kBFloat16: return !std::isfinite(static_cast<float>(*value.const_data_ptr<at::BFloat16>()));
    case at::kHalf: return !std::isfinite(static_cast<float>(*value.const_data_ptr<at::Half>()));
    default: return false;
  }
}

std::string times(int64_t count) { return count == 0 ? "never" : count == 1 ? "once" : fmt::format("{} times", count); }

}  // namespace

std::optional<std::string> describe_difference(const std::vector<LogCounts>& ranks) {
  const auto count_of = [](const LogCounts& counts, const std::string& name) {
    const auto found = counts.find(name);
    return found == counts.end() ? 0 : found->second;
  };
  for (size_t rank = 1; rank < ranks.size(); ++rank) {
    auto all = ranks[0];
    all.insert(ranks[rank].begin(), ranks[rank].end());
    for (const auto& [name, _] : all) {
      const auto first = count_of(ranks[0], name), other = count_of(ranks[rank], name);
      if (first == other) continue;
      return fmt::format(
          "ranks differ in what they log: rank 0 has logged '{}' {}, and rank {} {}. All ranks call Run::log with the "
          "same names and equally often, because figures are means over all ranks, and rank 0 alone prints and writes "
          "them; where a rank has no value, it logs one with weight 0",
          name, times(first), rank, times(other));
    }
  }
  return std::nullopt;
}

FirstNotFinite find_first_not_finite(const std::map<int64_t, NotFinite>& of_ranks, int64_t num_ranks) {
  if (of_ranks.empty()) return {};
  const auto& first = std::ranges::min_element(of_ranks, {}, [](const auto& one) { return one.second.step; })->second;
  std::vector<int64_t> ranks;
  for (const auto& [rank, value] : of_ranks) {
    if (value.step == first.step) ranks.push_back(rank);
  }
  const auto text = fmt::format("the first was {} in step {}", first.name, first.step);
  const bool is_one = ranks.size() == 1;
  if (static_cast<int64_t>(ranks.size()) == num_ranks) return {text + (num_ranks == 1 ? "" : ", on all ranks")};
  return {fmt::format("{}, on rank{} {} alone: look at {}", text, is_one ? "" : "s", fmt::join(ranks, ", "),
                      is_one ? "its batch" : "their batches"),
          true};
}

void Figures::add(const std::string& name, const at::Tensor& value, int64_t weight, int64_t step) {
  if (name.empty() || name.find_first_of(",/\r\n\"") != name.npos) {
    throw Error(ErrorCode::kInvalidArgument, "'{}' cannot be the name of a figure: it is a column of metrics.csv",
                name);
  }
  if (std::ranges::find(kReserved, name) != kReserved.end()) {
    throw Error(ErrorCode::kInvalidArgument,
                "'{}' cannot be the name of a figure: metrics.csv or steps.jsonl has it already, to say where a value "
                "belongs",
                name);
  }
  if (value.numel() != 1 || weight < 0) {
    throw Error(ErrorCode::kInvalidArgument, "'{}' takes one value and a weight of at least 0, not {} values and {}",
                name, value.numel(), weight);
  }
  if (std::ranges::find(names_, name) == names_.end()) {
    names_.push_back(name);
    // Older checkpoints have a single figure, without its name.
    if (auto unnamed = by_name_.extract(""); !unnamed.empty()) by_name_[name] = std::move(unnamed.mapped());
  }
  by_name_[name].add(value, weight);
  if (!not_finite_ && weight > 0 && is_not_finite(value)) not_finite_ = {name, step};
  ++counts_[name];
}

std::optional<std::string> Figures::difference() const {
  std::string own;
  for (const auto& [name, count] : counts_) own += fmt::format("{},{}\n", name, count);
  std::vector<LogCounts> ranks;
  const auto texts = group_.all_gather_text(own);
  for (const auto& text : texts) {
    auto& counts = ranks.emplace_back();
    for (const auto line : yoke::lines_of(text)) {
      const auto comma = line.find(',');
      counts.emplace(line.substr(0, comma), parse_int(line.substr(comma + 1)).value_or(0));
    }
  }
  auto difference = describe_difference(ranks);
  if (difference) dist::note_odd_ranks(*difference, texts, group_.ranks(), "the figures that are logged");
  return difference;
}

std::vector<std::pair<std::string, double>> Figures::read() const {
  std::map<std::string, double> means;
  for (const auto& [name, mean] : by_name_) {  // sorted, so that all ranks read in the same order
    const double value = mean.read(group_);
    if (!std::isnan(value) || mean.weight() > 0) means.emplace(name, value);
  }
  means.erase("");
  std::vector<std::pair<std::string, double>> result;
  for (const auto& name : names_) {
    if (const auto found = means.extract(name); !found.empty()) result.emplace_back(name, found.mapped());
  }
  result.insert(result.end(), means.begin(), means.end());
  return result;
}

void Figures::reset() {
  for (auto& [_, mean] : by_name_) mean.reset();
  counts_.clear();
  not_finite_.reset();
  was_not_finite_ = false;
}

std::string Figures::not_finite() const {
  if (was_not_finite_) return std::string(kLongAgo);
  return not_finite_ ? fmt::format("{} {}", not_finite_->step, not_finite_->name) : "";
}

FirstNotFinite Figures::first_not_finite(const std::vector<std::string>& notes) const {
  std::map<int64_t, NotFinite> of_ranks;
  for (size_t i = 0; i < notes.size(); ++i) {
    const auto& note = notes[i];
    if (note == kLongAgo) return {};
    const auto space = note.find(' ');
    if (space == note.npos) continue;
    of_ranks[group_.ranks()[i]] = {note.substr(space + 1), parse_int(note.substr(0, space)).value_or(0)};
  }
  return find_first_not_finite(of_ranks, group_.size());
}

void Figures::note_loaded() {
  not_finite_.reset();
  was_not_finite_ = std::ranges::any_of(by_name_, [](const auto& one) { return is_not_finite(one.second.sum()); });
}

TensorMap Figures::state_dict() const {
  std::string own;
  for (const auto& [name, _] : by_name_) own += name + "\n";
  std::set<std::string, std::less<>> names;
  for (const auto& text : group_.all_gather_text(own)) {
    for (const auto line : yoke::lines_of(text)) names.emplace(line);
  }
  TensorMap state;
  const Mean none;
  for (const auto& name : names) {
    const auto found = by_name_.find(name);
    state.emplace(name, gather_meters(group_, {found == by_name_.end() ? &none : &found->second}));
  }
  return state;
}

/// Each is float64 [4]: the sum, the weight, how often it was logged, and its place in the order.
TensorMap Figures::own_state_dict() const {
  TensorMap state;
  for (const auto& [name, mean] : by_name_) {
    const auto count = counts_.find(name);
    const auto place = std::ranges::find(names_, name) - names_.begin();
    const auto own = at::empty({4}, at::kDouble);
    auto* const numbers = own.mutable_data_ptr<double>();
    numbers[0] = mean.sum().item<double>();
    numbers[1] = static_cast<double>(mean.weight());
    numbers[2] = static_cast<double>(count == counts_.end() ? 0 : count->second);
    numbers[3] = static_cast<double>(place);
    state.emplace(name, own);
  }
  return state;
}

void Figures::load_own_state_dict(const TensorMap& state) {
  by_name_.clear();
  counts_.clear();
  std::vector<std::pair<double, std::string>> order;
  for (const auto& [name, numbers] : state) {
    by_name_[name].load_state(numbers.slice(0, 0, 2));
    const auto* const values = numbers.const_data_ptr<double>();
    if (values[2] > 0) counts_[name] = static_cast<int64_t>(values[2]);
    if (!name.empty()) order.emplace_back(values[3], name);
  }
  std::ranges::sort(order);
  names_.clear();
  for (auto& [place, name] : order) names_.push_back(std::move(name));
  note_loaded();
}

void Figures::load_state_dict(const TensorMap& state) {
  by_name_.clear();
  for (const auto& [name, rows] : state) restore_meters(group_, {&by_name_[name]}, rows);
  note_loaded();
}

}  // namespace yoke::train
