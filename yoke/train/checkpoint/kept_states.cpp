#include "yoke/train/checkpoint/kept_states.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/base/fields.h"
#include "yoke/contract/progress.h"
#include "yoke/contract/variables.h"
#include "yoke/dist/world.h"
#include "yoke/train/checkpoint/detail/rank_record.h"
#include "yoke/train/checkpoint/detail/replica.h"
#include "yoke/train/checkpoint/train_state.h"

namespace yoke::train {
namespace {

/// What ranks have alike, of one of the two states. What this rank alone has is in its record.
struct KeptState {
  int64_t step = -1;
  bool has_tensors = false;  ///< False if only the record is there, which a lost rank has written.
  TensorMap tensors;         ///< Under "PART/NAME".
  StringMap values;
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

/// The fields of all tensors, and then their elements.
void write_record(int64_t step, const RankPart& part, detail::RankRecord& record) {
  FieldWriter fields;
  std::vector<at::Tensor> dense;
  fields.add(part.note).add(static_cast<int64_t>(part.rows.size()));
  for (const auto& [name, tensor] : part.rows) {
    dense.push_back(tensor.detach().cpu().contiguous());
    fields.add(name);
    write_layout(dense.back(), fields);
  }
  for (const auto& slice : part.slices) {
    dense.push_back(slice.flat());
    fields.add(slice.name).add(static_cast<int64_t>(slice.shape.size()));
    for (const int64_t size : slice.shape) fields.add(size);
    fields.add(slice.first);
    write_layout(dense.back(), fields);
  }
  FieldWriter header;
  header.add(fields.bytes());
  std::vector<std::string_view> pieces = {header.bytes()};
  for (const auto& tensor : dense) pieces.push_back(bytes_of_tensor(tensor));
  record.write(step, pieces);
}

RankPart read_record(const detail::RankRecord& record) {
  const auto bytes = record.bytes();
  const auto header = FieldReader(bytes).text();
  FieldReader fields(header);
  RankPart part{.note = fields.text(), .rows = {}, .slices = {}};
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
  FieldWriter same;
  auto rest = bytes.substr(same.add(header).bytes().size());
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
  std::set<std::string> alike;  ///< The tensors that all ranks have alike.
  size_t num_slices = 0;        ///< That the state had when these were found.
  std::array<detail::RankRecord, 2> records;

  Impl(dist::World& all_ranks, TrainState& whole)
      : world(all_ranks),
        state(whole),
        records{detail::RankRecord(rank_file(world, 0)), detail::RankRecord(rank_file(world, 1))} {}
  void find_alike(size_t of_slices);
  size_t oldest() const { return kept[0].step < kept[1].step ? 0 : 1; }
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
  for (auto& record : impl_->records) record.clear();
}

/// An optimizer has no states before its first step.
void KeptStates::Impl::find_alike(size_t of_slices) {
  if (std::exchange(num_slices, of_slices) == of_slices) return;
  alike.clear();
  for (auto& replica : state.replicas()) {
    if (std::ssize(replica.ranks) == world.size()) alike.insert(std::move(replica.name));
  }
}

void KeptStates::keep(int64_t step, const std::string& note) {
  const c10::NoGradGuard no_grad;
  auto& all = *impl_;
  if (!all.world.is_replaceable()) return;
  if (all.kept[1 - all.oldest()].step == step) return;
  const auto index = all.oldest();
  auto& kept = all.kept[index];
  auto own = all.state.own_state();
  kept.step = -1;
  kept.has_tensors = false;
  RankPart part{.note = note, .rows = std::move(own.rows), .slices = {}};
  size_t num_used = 0;
  all.find_alike(own.slices.size());
  for (const auto& slice : own.slices) {
    if (!all.alike.contains(slice.name)) {
      part.slices.push_back(slice);
      continue;
    }
    auto& copy = kept.tensors[slice.name];
    const auto& values = slice.values;
    ++num_used;
    if (copy.defined() && copy.sizes() == values.sizes() && copy.scalar_type() == values.scalar_type() &&
        copy.strides() == values.strides()) {
      copy.copy_(values);
    } else {
      copy = values.detach().clone();
    }
  }
  if (num_used != kept.tensors.size()) {  // a part has fewer tensors than before, or names twice
    TensorMap present;
    for (const auto& slice : own.slices) {
      if (all.alike.contains(slice.name)) present.emplace(slice.name, kept.tensors.at(slice.name));
    }
    kept.tensors = std::move(present);
  }
  kept.values = std::move(own.values);
  write_record(step, part, all.records[index]);
  kept.has_tensors = true;
  kept.step = step;
  report_progress(step);
}

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
  for (const auto* bytes : {&fields.bytes(), static_cast<const std::string*>(&data)}) {
    world.send(at::full({1}, static_cast<int64_t>(bytes->size()), at::kLong), to);
    if (!bytes->empty()) world.send(to_tensor(*bytes), to);
  }
}

void KeptStates::Impl::receive(KeptState& into, int64_t from) const {
  const auto next = [&] {
    const auto size = at::full({1}, 0, at::kLong);
    world.receive(size, from);
    auto bytes = at::empty({size.item<int64_t>()}, at::kByte);
    if (bytes.numel() > 0) world.receive(bytes, from);
    return bytes;
  };
  const auto header = next(), data = next();
  FieldReader fields(bytes_of_tensor(header));
  auto rest = bytes_of_tensor(data);
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
  const auto gathered = world.all_gather(own);  // [ranks, 2 * (step, has tensors)]
  const auto* const of_all = gathered.const_data_ptr<int64_t>();
  struct Found {
    bool has_step = false, has_tensors = false;
  };
  const auto find = [&](int64_t rank, int64_t step) {
    for (size_t i = 0; i < 2; ++i) {
      const auto* const one = of_all + 4 * rank + 2 * static_cast<int64_t>(i);
      if (one[0] == step) return Found{true, one[1] != 0};
    }
    return Found{};
  };
  int64_t step = -1, donor = -1;
  for (int64_t of = 0; of < 2 * world.size(); ++of) {
    const auto candidate = of_all[2 * of];
    if (candidate <= step) continue;
    int64_t first = -1;
    bool is_common = true;
    for (int64_t rank = world.size() - 1; rank >= 0; --rank) {
      const auto found = find(rank, candidate);
      is_common &= found.has_step;
      if (found.has_tensors) first = rank;
    }
    if (is_common && first >= 0) step = candidate, donor = first;
  }
  if (step < 0) {
    throw Error(ErrorCode::kUnavailable,
                "rank {}: ranks were lost, and there is no state of one step that all ranks have kept: it happened "
                "before the first step, or too many ranks were lost at once",
                world.rank());
  }
  const size_t index = all.kept[0].step == step ? 0 : 1;
  auto& kept = all.kept[index];
  for (int64_t rank = 0; rank < world.size(); ++rank) {
    if (find(rank, step).has_tensors) continue;
    if (world.rank() == donor) all.send(kept, rank);
    if (world.rank() == rank) all.receive(kept, donor);
  }
  if (all.kept[1 - index].step > step) {
    all.records[1 - index].clear();
    all.kept[1 - index].step = -1;
  }
  auto part = read_record(all.records[index]);
  TrainState::OwnState whole;
  whole.slices = std::move(part.slices);
  for (const auto& [name, tensor] : kept.tensors) whole.slices.push_back({name, tensor.sizes().vec(), 0, tensor});
  whole.values = kept.values;
  whole.rows = std::move(part.rows);
  all.state.load_own(whole);
  return {step, part.note};
}

}  // namespace yoke::train
