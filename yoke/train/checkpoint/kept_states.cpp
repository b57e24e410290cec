#include "yoke/train/checkpoint/kept_states.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/base/fields.h"
#include "yoke/contract/progress.h"
#include "yoke/contract/variables.h"
#include "yoke/dist/world.h"
#include "yoke/train/checkpoint/detail/rank_record.h"
#include "yoke/train/checkpoint/train_state.h"

namespace yoke::train {
namespace {

/// One of the two states.
struct KeptState {
  int64_t step = -1;
  std::string note;
  bool has_tensors = false;  ///< Otherwise only the rows, which come from the file of a lost rank.
  TensorMap tensors;         ///< Under "PART/NAME".
  StringMap values;
  TensorMap rows;  ///< What this rank alone has.
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

std::string encode_rows(const std::string& note, const NamedTensors& rows) {
  FieldWriter fields;
  fields.add(note);
  for (const auto& [name, tensor] : rows) {
    fields.add(name);
    const auto dense = tensor.cpu().contiguous();
    write_layout(dense, fields);
    fields.add(bytes_of_tensor(dense));
  }
  return fields.bytes();
}

void decode_rows(std::string_view bytes, KeptState& state) {
  FieldReader fields(bytes);
  state.note = fields.text();
  while (!fields.at_end()) {
    const auto name = fields.text();
    const auto tensor = make_described(fields);
    fill(tensor, fields.text());
    state.rows.emplace(name, tensor);
  }
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
  std::array<detail::RankRecord, 2> records;

  Impl(dist::World& all_ranks, TrainState& whole)
      : world(all_ranks),
        state(whole),
        records{detail::RankRecord(rank_file(world, 0)), detail::RankRecord(rank_file(world, 1))} {}
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
    auto& kept = impl_->kept[i];
    decode_rows(impl_->records[i].bytes(), kept);
    kept.step = *step;
  }
}

KeptStates::~KeptStates() = default;

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
  size_t num_used = 0;
  for (const auto& slice : own.slices) {
    if (slice.first != 0 || slice.values.numel() != num_elements(slice.shape)) {
      throw Error(ErrorCode::kFailedPrecondition,
                  "the state cannot be kept for ranks that are lost: '{}' is divided between ranks", slice.name);
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
    for (const auto& slice : own.slices) present.emplace(slice.name, kept.tensors.at(slice.name));
    kept.tensors = std::move(present);
  }
  kept.values = std::move(own.values);
  all.records[index].write(step, encode_rows(note, own.rows));
  kept.rows.clear();
  for (auto& [name, tensor] : own.rows) kept.rows.emplace(name, std::move(tensor));
  kept.note = note;
  kept.has_tensors = true;
  kept.step = step;
  report_progress(step);  // the launcher replaces ranks that have kept a state
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
  all.state.load_own(kept.tensors, kept.rows, kept.values);
  return {step, kept.note};
}

}  // namespace yoke::train
