#include "yoke/train/checkpoint/kept_states.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/base/fields.h"
#include "yoke/contract/progress.h"
#include "yoke/contract/variables.h"
#include "yoke/dist/arrivals.h"
#include "yoke/dist/world.h"
#include "yoke/train/checkpoint/detail/rank_record.h"
#include "yoke/train/checkpoint/detail/replica.h"
#include "yoke/train/checkpoint/detail/state_copies.h"
#include "yoke/train/checkpoint/detail/state_part.h"
#include "yoke/train/checkpoint/detail/unused_gradients.h"
#include "yoke/train/checkpoint/train_state.h"

namespace yoke::train {
namespace {

/// What ranks have alike, of one of the two states. What this rank alone has is in its record.
struct KeptState {
  int64_t step = -1;
  bool has_tensors = false;  ///< False if only the record is there, which a lost rank has written.
  TensorMap tensors;         ///< Under "PART/NAME".
  StringMap values;
  /// `tensors` in the order of the state's slices, if these are arranged as OwnNow says.
  std::vector<at::Tensor*> places;
  int64_t arrangement = 0;
};

/// What is in a record.
struct RankPart {
  std::string note;
  NamedTensors rows;
  TensorSlices slices;  ///< Of tensors that are divided between ranks, or may have other values on others.
};

std::string_view bytes_of_tensor(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

void write_layout(const at::Tensor& tensor, FieldWriter& fields) {
  fields.add(static_cast<int64_t>(tensor.scalar_type())).add(tensor.dim());
  for (const int64_t size : tensor.sizes()) fields.add(size);
}

at::Tensor make_described(FieldReader& fields) {
  const auto type = static_cast<at::ScalarType>(fields.number());
  std::vector<int64_t> sizes(static_cast<size_t>(fields.small_number()));
  for (auto& size : sizes) size = fields.number();
  return at::empty(sizes, type);
}

void fill(const at::Tensor& tensor, std::string_view bytes) {
  if (tensor.nbytes() != bytes.size()) throw Error(ErrorCode::kInternal, "a kept tensor has another size");
  if (!bytes.empty()) std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
}

/// Whether its elements are the bytes of its memory, in their order.
bool is_plain(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.is_cpu() && tensor.is_contiguous() && !tensor.is_conj() &&
         !tensor.is_neg();
}

/// libtorch's copy takes 3,000 instructions, as much as 50 KB.
void copy_into(at::Tensor& copy, const at::Tensor& values) {
  const bool fits = copy.defined() && copy.sizes() == values.sizes() && copy.scalar_type() == values.scalar_type();
  if (fits && is_plain(values) && is_plain(copy)) {
    if (values.numel() > 0) {
      std::memcpy(copy.mutable_data_ptr(), values.const_data_ptr(),
                  static_cast<size_t>(values.numel()) * values.element_size());
    }
  } else if (fits && copy.strides() == values.strides()) {
    copy.copy_(values);
  } else {
    copy = values.detach().clone();
  }
}

/// The training's state as it is now. What does not change from step to step is found once.
class OwnNow {
 public:
  /// `num_ranks`: of the World.
  OwnNow(const TrainState& state, int64_t num_ranks) : state_(state), num_ranks_(num_ranks) {}

  void update() {
    if (!is_known_ || !renew_own(state_, own_) || !has_same_layout()) arrange();
  }
  /// After this, nothing is known any more.
  void forget() { is_known_ = false; }

  void copy_alike(KeptState& kept) const {
    if (kept.arrangement != arrangement_) {
      kept.arrangement = 0;
      kept.places.clear();
      TensorMap tensors;
      for (const size_t i : alike_slices_) {
        const auto& name = own_.slices[i].name;
        kept.places.push_back(&tensors.emplace(name, kept.tensors[name]).first->second);
      }
      kept.tensors = std::move(tensors);
      kept.arrangement = arrangement_;
    }
    for (size_t i = 0; i < alike_slices_.size(); ++i) copy_into(*kept.places[i], own_.slices[alike_slices_[i]].values);
    kept.values = own_.values;
  }
  void write_record(int64_t step, const std::string& note, detail::RankRecord& record) const;

 private:
  void arrange();
  void find_alike();
  bool has_same_layout() const {
    for (size_t i = 0; i < described_.size(); ++i) {
      const auto& tensor = recorded(i);
      if (tensor.scalar_type() != described_[i].first || tensor.sizes() != described_[i].second) return false;
    }
    return true;
  }
  /// First all rows, then the slices that are in the record.
  const at::Tensor& recorded(size_t i) const {
    return i < own_.rows.size() ? own_.rows[i].second : own_.slices[own_slices_[i - own_.rows.size()]].values;
  }

  const TrainState& state_;
  const int64_t num_ranks_;
  bool is_known_ = false;
  TrainState::OwnState own_;
  int64_t arrangement_ = 0;           ///< Another number for each arrange().
  std::set<std::string> alike_;       ///< The tensors that all ranks have alike.
  size_t num_slices_ = 0;             ///< That the state had when these were found.
  std::vector<size_t> alike_slices_;  ///< The indices of their slices, and those of all others:
  std::vector<size_t> own_slices_;
  std::vector<std::pair<at::ScalarType, std::vector<int64_t>>> described_;  ///< What is recorded.
  std::string layout_;                                                      ///< The record's first text, of these.
};

/// An optimizer has no states before its first step.
void OwnNow::find_alike() {
  if (std::exchange(num_slices_, own_.slices.size()) == own_.slices.size()) return;
  alike_.clear();
  for (auto& replica : state_.replicas()) {
    if (std::ssize(replica.ranks) == num_ranks_) alike_.insert(std::move(replica.name));
  }
}

void OwnNow::arrange() {
  is_known_ = false;
  own_ = state_.own_state();
  find_alike();
  alike_slices_.clear();
  own_slices_.clear();
  for (size_t i = 0; i < own_.slices.size(); ++i) {
    (alike_.contains(own_.slices[i].name) ? alike_slices_ : own_slices_).push_back(i);
  }
  described_.clear();
  FieldWriter fields;
  fields.add(static_cast<int64_t>(own_.rows.size()));
  for (size_t i = 0; i < own_.rows.size() + own_slices_.size(); ++i) {
    const auto& tensor = recorded(i);
    if (i < own_.rows.size()) {
      fields.add(own_.rows[i].first);
    } else {
      const auto& slice = own_.slices[own_slices_[i - own_.rows.size()]];
      fields.add(slice.name).add(static_cast<int64_t>(slice.shape.size()));
      for (const int64_t size : slice.shape) fields.add(size);
      fields.add(slice.first);
    }
    write_layout(tensor, fields);
    described_.emplace_back(tensor.scalar_type(), tensor.sizes().vec());
  }
  layout_ = FieldWriter().add(fields.bytes()).bytes();
  ++arrangement_;
  is_known_ = true;
}

/// A text with the fields of all tensors, the note, and then the tensors' elements.
void OwnNow::write_record(int64_t step, const std::string& note, detail::RankRecord& record) const {
  FieldWriter noted;
  noted.add(note);
  std::vector<std::string_view> pieces = {layout_, noted.bytes()};
  std::vector<at::Tensor> dense;
  for (size_t i = 0; i < described_.size(); ++i) {
    const auto& tensor = recorded(i);
    if (is_plain(tensor) && tensor.scalar_type() != at::kBool) {
      pieces.push_back(bytes_of_tensor(tensor));
      continue;
    }
    dense.push_back(TensorSlice{.name = {}, .shape = {}, .first = 0, .values = tensor.detach().cpu()}.flat());
    pieces.push_back(bytes_of_tensor(dense.back()));
  }
  record.write(step, pieces);
}

RankPart read_record(const detail::RankRecord& record) {
  auto rest = record.bytes();
  FieldReader texts(rest);
  const auto layout = texts.text(), note = texts.text();
  rest.remove_prefix(FieldWriter().add(layout).add(note).bytes().size());
  FieldReader fields(layout);
  RankPart part{.note = note, .rows = {}, .slices = {}};
  for (auto count = fields.number(); count > 0; --count) {
    auto name = fields.text();
    part.rows.emplace_back(std::move(name), make_described(fields));
  }
  while (!fields.at_end()) {
    TensorSlice slice{.name = fields.text(), .shape = {}, .first = 0, .values = {}};
    slice.shape.resize(static_cast<size_t>(fields.small_number()));
    for (auto& size : slice.shape) size = fields.number();
    slice.first = fields.number();
    slice.values = make_described(fields);
    part.slices.push_back(std::move(slice));
  }
  const auto take = [&rest](const at::Tensor& tensor) {
    fill(tensor, rest.substr(0, tensor.nbytes()));
    rest.remove_prefix(tensor.nbytes());
  };
  for (const auto& row : part.rows) take(row.second);
  for (const auto& slice : part.slices) take(slice.values);
  return part;
}

at::Tensor to_tensor(std::string_view bytes) {
  auto tensor = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
  if (!bytes.empty()) std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

void send_bytes(dist::World& world, const at::Tensor& bytes, int64_t to) {
  world.send(at::full({1}, bytes.numel(), at::kLong), to);
  if (bytes.numel() > 0) world.send(bytes, to);
}

at::Tensor receive_bytes(dist::World& world, int64_t from) {
  const auto size = at::full({1}, 0, at::kLong);
  world.receive(size, from);
  auto bytes = at::empty({size.item<int64_t>()}, at::kByte);
  if (bytes.numel() > 0) world.receive(bytes, from);
  return bytes;
}

/// What all ranks have. Numbers of ranks and of steps are -1 if there is none.
class KeptByAll {
 public:
  /// `own`: [ranks, 2 * (step, has tensors)]. `copies`: [ranks, ranks, 2], which copies each rank holds of each rank's
  /// record; undefined if there are none.
  KeptByAll(at::Tensor own, at::Tensor copies) : own_(std::move(own)), copies_(std::move(copies)) {}

  int64_t num_ranks() const { return own_.size(0); }
  bool has_record(int64_t rank, int64_t step) const { return own_of(rank, step) != nullptr; }
  bool has_tensors(int64_t rank, int64_t step) const {
    const auto* const one = own_of(rank, step);
    return one != nullptr && one[1] != 0;
  }
  /// The first rank with the tensors.
  int64_t donor(int64_t step) const {
    for (int64_t rank = 0; rank < num_ranks(); ++rank) {
      if (has_tensors(rank, step)) return rank;
    }
    return -1;
  }
  /// The first rank that holds a copy of the rank's record.
  int64_t holder(int64_t rank, int64_t step) const {
    for (int64_t other = 0; copies_.defined() && other < num_ranks(); ++other) {
      const auto* const steps = copies_.const_data_ptr<int64_t>() + 2 * (other * num_ranks() + rank);
      if (steps[0] == step || steps[1] == step) return other;
    }
    return -1;
  }
  /// Which states the ranks have themselves.
  std::string describe() const {
    std::map<std::string, std::vector<int64_t>> ranks_with;
    for (int64_t rank = 0; rank < num_ranks(); ++rank) {
      std::vector<int64_t> steps;
      for (int64_t i = 0; i < 2; ++i) {
        if (const auto step = own_.const_data_ptr<int64_t>()[2 * (2 * rank + i)]; step >= 0) steps.push_back(step);
      }
      std::ranges::sort(steps);
      ranks_with[steps.empty() ? "none" : fmt::format("after step {}", fmt::join(steps, " and "))].push_back(rank);
    }
    std::string text;
    for (const auto& [states, ranks] : ranks_with) {
      text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", dist::list_ranks(ranks), states);
    }
    return text;
  }
  bool has_rank_without_state() const {
    for (int64_t rank = 0; rank < num_ranks(); ++rank) {
      const auto* const one = own_.const_data_ptr<int64_t>() + 4 * rank;
      if (one[0] < 0 && one[2] < 0) return true;
    }
    return false;
  }
  /// The newest step of which all has been kept.
  int64_t newest() const {
    return newest_if([this](int64_t step) { return donor(step) >= 0; });
  }
  /// The newest step of which all has been kept but what the ranks have alike.
  int64_t newest_without_tensors() const {
    return newest_if([this](int64_t step) { return donor(step) < 0; });
  }

 private:
  const int64_t* own_of(int64_t rank, int64_t step) const {
    for (int64_t i = 0; i < 2; ++i) {
      const auto* const one = own_.const_data_ptr<int64_t>() + 2 * (2 * rank + i);
      if (one[0] == step) return one;
    }
    return nullptr;
  }
  int64_t newest_if(const auto& is_wanted) const {
    int64_t newest = -1;
    for (int64_t i = 0; i < 2 * num_ranks(); ++i) {
      const auto step = own_.const_data_ptr<int64_t>()[2 * i];
      if (step > newest && is_wanted(step) && are_all_records_of(step)) newest = step;
    }
    return newest;
  }
  bool are_all_records_of(int64_t step) const {
    for (int64_t rank = 0; rank < num_ranks(); ++rank) {
      if (!has_record(rank, step) && holder(rank, step) < 0) return false;
    }
    return true;
  }

  at::Tensor own_, copies_;
};

/// Empty if nothing is kept.
std::string rank_file(const dist::World& world, size_t index) {
  const char* const path = world.is_replaceable() ? std::getenv(variable::kRankState) : nullptr;
  return path == nullptr ? "" : fmt::format("{}.{}", path, index);
}

}  // namespace

struct KeptStates::Impl {
  dist::World& world;
  TrainState& state;
  std::array<KeptState, 2> kept;
  OwnNow own;
  std::array<detail::RankRecord, 2> records;
  std::optional<detail::StateCopies> copies;  ///< Only if spare hosts wait.
  std::optional<detail::UnusedGradients> unused;
  std::optional<std::vector<at::Tensor>> optimized;  ///< Found by the first keep().
  const pid_t rank_process = getpid();

  Impl(dist::World& all_ranks, TrainState& whole)
      : world(all_ranks),
        state(whole),
        own(whole, all_ranks.size()),
        records{detail::RankRecord(rank_file(world, 0)), detail::RankRecord(rank_file(world, 1))} {
    if (detail::StateCopies::are_wanted(world)) copies.emplace(world);
    if (world.is_replaceable()) unused.emplace();
  }
  bool has_unused_gradients() {
    if (!optimized) optimized = state.optimized();
    const bool has_some = unused->any(*optimized);
    unused->forget();
    return has_some;
  }
  size_t oldest() const { return kept[0].step < kept[1].step ? 0 : 1; }
  detail::StateRecord newest_record() const {
    const auto newest = 1 - oldest();
    return kept[newest].step < 0 ? detail::StateRecord{}
                                 : detail::StateRecord{kept[newest].step, records[newest].bytes()};
  }
  void send(const KeptState& from, int64_t to) const;
  void receive(KeptState& into, int64_t from) const;
};

KeptStates::KeptStates(dist::World& world, TrainState& state) : impl_(std::make_unique<Impl>(world, state)) {
  for (size_t i = 0; i < impl_->kept.size(); ++i) {
    const auto step = impl_->records[i].step();
    if (!world.needs_recovery() || !step) {
      impl_->records[i].clear();  // of an earlier use in this process
      continue;
    }
    impl_->kept[i].step = *step;
  }
}

KeptStates::~KeptStates() {
  if (getpid() != impl_->rank_process) return;  // in a process that was forked from the rank, whose files these are
  for (auto& record : impl_->records) record.clear();
}

void KeptStates::keep(int64_t step, const std::string& note) {
  const c10::NoGradGuard no_grad;
  auto& all = *impl_;
  if (!all.world.is_replaceable()) return;
  if (all.kept[1 - all.oldest()].step == step) return;
  // The first state is that before the first batch, whatever gradients an earlier backward has left.
  const bool is_first = all.kept[0].step < 0 && all.kept[1].step < 0;
  const bool is_between_batches = all.has_unused_gradients() && !is_first;
  // The older state may still be needed.
  const auto wanted = is_between_batches ? detail::StateCopies::kNoStep : step;
  if (all.copies && !all.copies->agree(wanted, all.newest_record())) return;
  if (is_between_batches) return;
  const auto index = all.oldest();
  auto& kept = all.kept[index];
  all.own.update();
  kept.step = -1;
  kept.has_tensors = false;
  all.own.copy_alike(kept);
  all.own.write_record(step, note, all.records[index]);
  kept.has_tensors = true;
  kept.step = step;
  report_progress(step);
  if (all.copies) all.copies->begin(all.newest_record());
}

bool KeptStates::has_copies() const { return impl_->copies.has_value(); }

void KeptStates::Impl::send(const KeptState& from, int64_t to) const {
  FieldWriter fields;
  fields.add(static_cast<int64_t>(from.tensors.size()));
  std::string data;
  for (const auto& [name, tensor] : from.tensors) {
    fields.add(name);
    const auto dense = tensor.contiguous();
    write_layout(dense, fields);
    data += bytes_of_tensor(dense);
  }
  for (const auto& [name, text] : from.values) fields.add(name).add(text);
  send_bytes(world, to_tensor(fields.bytes()), to);
  send_bytes(world, to_tensor(data), to);
}

void KeptStates::Impl::receive(KeptState& into, int64_t from) const {
  const auto header = receive_bytes(world, from), data = receive_bytes(world, from);
  FieldReader fields(bytes_of_tensor(header));
  auto rest = bytes_of_tensor(data);
  into.arrangement = 0;
  into.tensors.clear();
  into.values.clear();
  for (auto count = fields.number(); count > 0; --count) {
    const auto name = fields.text();
    const auto tensor = make_described(fields);
    fill(tensor, rest.substr(0, tensor.nbytes()));
    rest.remove_prefix(tensor.nbytes());
    into.tensors.emplace(name, tensor);
  }
  while (!fields.at_end()) {
    const auto name = fields.text();
    into.values[name] = fields.text();
  }
  into.has_tensors = true;
}

KeptStates::Restored KeptStates::restore() {
  const c10::NoGradGuard no_grad;
  auto& all = *impl_;
  auto& world = all.world;
  const auto own = at::empty({4}, at::kLong);
  auto* const numbers = own.mutable_data_ptr<int64_t>();
  for (size_t i = 0; i < 2; ++i) {
    numbers[2 * i] = all.kept[i].step;
    numbers[2 * i + 1] = all.kept[i].has_tensors ? 1 : 0;
  }
  const auto own_of_all = world.all_gather(own);
  at::Tensor copies_of_all;
  if (all.copies) {
    all.copies->begin_again();
    copies_of_all = world.all_gather(at::tensor(all.copies->steps(), at::kLong));
  }
  const KeptByAll of_all(own_of_all, copies_of_all);
  const auto step = of_all.newest(), donor = of_all.donor(step);
  if (const auto other = of_all.newest_without_tensors(); step < 0 && other >= 0) {
    throw Error(
        ErrorCode::kUnavailable,
        "rank {}: ranks were lost, and of the state after step {} each rank has its own part, but none has what "
        "all ranks have alike, such as parameters, any more: all that had it were lost, one after the other, "
        "before another one had got it from them",
        world.rank(), other);
  }
  if (step < 0) {
    const auto why =
        of_all.has_rank_without_state()
            ? fmt::format("it happened before the first step{}, or too many ranks were lost at once",
                          all.copies ? "s" : "")
            : std::string(
                  "each rank keeps its last two states, and these ranks were further apart: let all ranks meet "
                  "in each step, as by World::barrier() where groups of them train apart, and call "
                  "KeptStates::keep() with the same steps");
    throw Error(ErrorCode::kUnavailable,
                "rank {}: ranks were lost, and there is no state of one step that all ranks have kept{} ({}): {}",
                world.rank(), all.copies ? ", or another host for them" : "", of_all.describe(), why);
  }
  size_t index = all.kept[0].step == step ? 0 : 1;
  if (all.kept[index].step != step) {
    index = all.oldest();
    all.kept[index] = {};
  }
  auto& kept = all.kept[index];
  for (int64_t rank = 0; rank < world.size(); ++rank) {
    if (of_all.has_record(rank, step)) continue;
    const auto holder = of_all.holder(rank, step);
    if (world.rank() == holder) send_bytes(world, all.copies->find(rank, step), rank);
    if (world.rank() != rank) continue;
    const auto record = receive_bytes(world, holder);
    const std::array pieces = {bytes_of_tensor(record)};
    all.records[index].write(step, pieces);
    kept.step = step;
  }
  for (int64_t rank = 0; rank < world.size(); ++rank) {
    if (of_all.has_tensors(rank, step)) continue;
    if (world.rank() == donor) all.send(kept, rank);
    if (world.rank() == rank) all.receive(kept, donor);
  }
  if (all.kept[1 - index].step > step) {
    all.records[1 - index].clear();
    all.kept[1 - index].step = -1;
  }
  if (all.copies) {  // so that the loss of another host, from now on, is like that of the first one
    all.copies->forget_after(step);
    all.copies->send_now({step, all.records[index].bytes()});
  }
  auto part = read_record(all.records[index]);
  TrainState::OwnState whole;
  whole.slices = std::move(part.slices);
  for (const auto& [name, tensor] : kept.tensors) whole.slices.push_back({name, tensor.sizes().vec(), 0, tensor});
  whole.values = kept.values;
  whole.rows = std::move(part.rows);
  all.own.forget();
  all.state.load_own(whole);
  return {step, part.note};
}

}  // namespace yoke::train
