#include "yoke/train/checkpoint/train_state.h"

#include <ATen/ops/zeros.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "yoke/base/error.h"
#include "yoke/base/utf8.h"
#include "yoke/dist/group.h"
#include "yoke/dist/on_all_ranks.h"
#include "yoke/train/checkpoint/detail/state_part.h"

namespace yoke::train {
namespace {

/// Lists the names of all parts, including those that have nothing to save yet.
constexpr auto kPartsMark = "yoke.parts";

std::optional<std::set<std::string>> listed_parts(const StoredCheckpoint& checkpoint) {
  const auto found = checkpoint.marks.find(kPartsMark);
  if (found == checkpoint.marks.end()) return std::nullopt;
  try {
    return nlohmann::json::parse(found->second).get<std::set<std::string>>();
  } catch (const nlohmann::json::exception&) {
    throw Error(ErrorCode::kDataLoss, "{}: its list of parts is '{}'", checkpoint.path.string(), found->second);
  }
}

/// The one tensor of this name, under "".
TensorSource tensor_of(const TensorSource& source, const std::string& name) {
  return {.tensors = {{"", source.tensors.at(name)}},
          .read = [read = source.read, name](const auto&, int64_t first,
                                             int64_t length) { return read(name, first, length); },
          .what = fmt::format("'{}' of {}", name, source.what)};
}

/// Of a divided tensor, it reads what the slice has.
TensorSource source_of_slices(const TensorSlices& slices) {
  TensorSource source{.tensors = {}, .read = {}, .what = "the state that this rank has kept"};
  std::map<std::string, TensorSlice> by_name;
  for (const auto& slice : slices) {
    source.tensors.emplace(slice.name, TensorSource::Whole{slice.values.scalar_type(), slice.shape});
    by_name.emplace(slice.name, slice);
  }
  source.read = [by_name = std::move(by_name)](const std::string& name, int64_t first, int64_t length) {
    const auto& slice = by_name.at(name);
    if (first < slice.first || first + length > slice.first + slice.values.numel()) {
      throw Error(ErrorCode::kInvalidArgument, "this rank has kept elements {} to {} of '{}', and has others now",
                  slice.first, slice.first + slice.values.numel(), name);
    }
    return slice.flat().narrow(0, first - slice.first, length);
  };
  return source;
}

/// Returns the names that are unknown on every rank.
std::set<std::string> unknown_to_all(dist::Group& group, const std::vector<std::string>& unknown_here) {
  std::set<std::string> result(unknown_here.begin(), unknown_here.end());
  for (const auto& text : group.all_gather_text(nlohmann::json(unknown_here).dump())) {
    const auto theirs = nlohmann::json::parse(text).get<std::set<std::string>>();
    std::erase_if(result, [&](const auto& name) { return !theirs.contains(name); });
  }
  return result;
}

}  // namespace

struct TrainState::Impl {
  dist::Group& group;
  std::vector<std::pair<std::string, std::unique_ptr<Part>>> parts;
};

TrainState::TrainState(dist::Group& group) : impl_(new Impl{.group = group, .parts = {}}) {}
TrainState::~TrainState() = default;
TrainState::TrainState(TrainState&&) noexcept = default;

dist::Group& TrainState::group() const { return impl_->group; }

TrainState& TrainState::add_part(const std::string& name, std::unique_ptr<Part> part) {
  if (name.empty() || name.starts_with("yoke.") || !is_utf8(name)) {
    throw Error(ErrorCode::kInvalidArgument, "'{}' is not a valid name for a part of the training state", name);
  }
  for (const auto& [other, ignored] : impl_->parts) {
    if (name != other && !name.starts_with(other + "/") && !other.starts_with(name + "/")) continue;
    throw Error(ErrorCode::kInvalidArgument,
                "the training state already has a part '{}', so another part cannot be named '{}'", other, name);
  }
  impl_->parts.emplace_back(name, std::move(part));
  return *this;
}

TrainState::Snapshot TrainState::snapshot() const {
  Snapshot snapshot;
  std::vector<RankRow> rows;
  on_all_ranks(impl_->group, "the training's state was not taken", [&] {
    std::vector<std::string> names;
    for (const auto& [name, part] : impl_->parts) {
      part->save(name, snapshot, rows);
      names.push_back(name);
    }
    snapshot.values[kPartsMark] = nlohmann::json(names).dump();
  });
  for (const auto& row : rows) {
    auto all = impl_->group.all_gather(row.own.to(impl_->group.device())).cpu();
    if (row.arrange) all = row.arrange(all);
    snapshot.slices.push_back({row.name, all.sizes().vec(), 0, all});
  }
  return snapshot;
}

std::vector<at::Tensor> TrainState::optimized() const {
  std::vector<at::Tensor> all;
  for (const auto& [_, part] : impl_->parts) part->add_optimized(all);
  return all;
}

std::vector<detail::Replica> TrainState::replicas() const {
  std::vector<detail::Replica> all;
  for (const auto& [name, part] : impl_->parts) part->add_replicas(name, all);
  return all;
}

void TrainState::Part::save_own(const std::string& name, OwnState& own) {
  std::vector<RankRow> rows;
  save(name, own, rows);
  for (auto& row : rows) own.rows.emplace_back(std::move(row.name), std::move(row.own));
}

void TrainState::Part::load_own(PartSource source, const TensorMap& rows) {
  Snapshot ignored;
  std::vector<RankRow> present;  // tells how rows are arranged
  save(source.name, ignored, present);
  for (const auto& row : present) {
    const auto found = rows.find(row.name);
    if (found == rows.end()) continue;
    auto shape = found->second.sizes().vec();
    shape.insert(shape.begin(), source.group.size());
    auto all = at::zeros(shape, found->second.options());  // only the own row is read
    all[source.group.rank()].copy_(found->second);
    if (row.arrange) all = row.arrange(all);
    source.tensors = source_of({{"", all}});
  }
  prepare(source).commit();
}

bool TrainState::Part::renew_own(const std::string& name, OwnState& own, OwnPlace& place) {
  OwnState now;
  save_own(name, now);
  for (auto& slice : now.slices) {
    if (place.slice == own.slices.size()) return false;
    auto& before = own.slices[place.slice++];
    if (slice.name != before.name || slice.shape != before.shape || slice.first != before.first) return false;
    before.values = std::move(slice.values);
  }
  for (auto& [key, tensor] : now.rows) {
    if (place.row == own.rows.size()) return false;
    auto& before = own.rows[place.row++];
    if (key != before.first) return false;
    before.second = std::move(tensor);
  }
  for (auto& [key, text] : now.values) {
    const auto before = own.values.find(key);
    if (before == own.values.end()) return false;
    before->second = std::move(text);
  }
  return true;
}

bool TrainState::Part::renew_all(const TrainState& state, OwnState& own) {
  OwnPlace place;
  for (const auto& [name, part] : state.impl_->parts) {
    if (!part->renew_own(name, own, place)) return false;
  }
  return place.slice == own.slices.size() && place.row == own.rows.size();
}

TrainState::OwnState TrainState::own_state() const {
  OwnState own;
  for (const auto& [name, part] : impl_->parts) part->save_own(name, own);
  return own;
}

void TrainState::load_own(const OwnState& own) {
  const auto source = source_of_slices(own.slices);
  const TensorMap rows(own.rows.begin(), own.rows.end());
  const Warn silent = [](const std::string&) {};
  for (const auto& [name, part] : impl_->parts) {
    const auto text = own.values.find(name);
    part->load_own({.name = name,
                    .tensors = source.tensors.contains(name) ? tensor_of(source, name) : part_of(source, name),
                    .text = text == own.values.end() ? nullptr : &text->second,
                    .is_listed = true,
                    .group = impl_->group,
                    .warn = silent},
                   rows);
  }
}

void TrainState::load(const StoredCheckpoint& checkpoint, const Warn& warn) {
  auto& group = impl_->group;
  const Warn warn_once = [&](const std::string& message) {
    if (group.rank() == 0) warn(message);
  };
  const auto what = checkpoint.path.string() + " was not loaded";
  std::vector<PreparedPart> prepared;
  std::vector<std::string> unknown;
  on_all_ranks(group, what, [&] {
    const auto listed = listed_parts(checkpoint);
    std::set<std::string> left_out = listed.value_or(std::set<std::string>());
    for (const auto& [name, part] : impl_->parts) {
      PartSource source{.name = name,
                        .tensors = checkpoint.part(name),
                        .text = nullptr,
                        .is_listed = listed && listed->contains(name),
                        .group = group,
                        .warn = warn_once};
      if (checkpoint.source.tensors.contains(name)) source.tensors = tensor_of(checkpoint.source, name);
      if (const auto text = checkpoint.metadata.find(name); text != checkpoint.metadata.end()) {
        source.text = &text->second;
      }
      const bool is_there = source.is_listed || source.text != nullptr || !source.tensors.tensors.empty();
      if (!is_there && !part->is_optional()) {
        throw Error(ErrorCode::kInvalidArgument,
                    "{} has no '{}': load it into a state without that part, and initialise that part again",
                    checkpoint.source.what, name);
      }
      prepared.push_back(part->prepare(source));
      for (const auto& tensor : prepared.back().unknown) unknown.push_back(fmt::format("{}/{}", name, tensor));
      left_out.erase(name);
    }
    if (!left_out.empty()) {
      warn_once(fmt::format("{} also has {}, which this training's state has not: left out", checkpoint.path.string(),
                            fmt::join(left_out, ", ")));
    }
  });
  if (const auto names = unknown_to_all(group, unknown); !names.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "{} is of another model: it has '{}', which is of no parameter here",
                checkpoint.source.what, *names.begin());
  }
  on_all_ranks(group, what, [&] {
    for (const auto& part : prepared) part.commit();
  });
}

}  // namespace yoke::train
