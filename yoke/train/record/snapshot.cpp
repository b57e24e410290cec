#include "yoke/train/record/detail/snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "yoke/train/detail/describe.h"
#include "yoke/train/detail/rehearsal.h"

namespace yoke::train::detail {
namespace {

/// All elements of a memory.
at::Tensor elements(const c10::Storage& storage, at::ScalarType dtype) {
  const auto size = static_cast<int64_t>(storage.nbytes()), item = static_cast<int64_t>(at::elementSize(dtype));
  const auto key = storage.device().is_cpu() ? c10::DispatchKey::CPU : c10::DispatchKey::CUDA;
  const bool is_whole = size % item == 0;
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), c10::DispatchKeySet(key),
                                                         c10::scalarTypeToTypeMeta(is_whole ? dtype : at::kByte));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous({is_whole ? size / item : size});
  return tensor;
}

/// The numbers on the CPU, where they are compared. That is rare.
at::Tensor numbers_of(const at::Tensor& tensor) { return tensor.to(at::kCPU, at::kDouble); }

double largest(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.numel() == 0) return 0;
  return numbers_of(tensor).abs().nan_to_num(0, 0, 0).max().item<double>();
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  if (same_bytes(a, b)) return 0;
  constexpr auto kInfinity = std::numeric_limits<double>::infinity();
  if (!a.defined() || !b.defined() || a.sizes() != b.sizes() || a.is_complex()) return kInfinity;
  const auto x = numbers_of(a), y = numbers_of(b);
  const auto are_same = x.eq(y).bitwise_or(x.ne(x).bitwise_and(y.ne(y)));
  const auto value = x.sub(y).abs().masked_fill(are_same, 0).max().item<double>();
  return std::isnan(value) ? kInfinity : value;
}

/// How far sums in another order may lead, if they do not show in the replays.
double tolerance(const at::Tensor& before, const at::Tensor& after) {
  if (!after.defined() || !after.is_floating_point()) return 0;
  const bool is_half = at::isReducedFloatingType(after.scalar_type());
  const auto epsilon = after.scalar_type() == at::kBFloat16 ? 0x1p-7 : is_half ? 0x1p-10 : 0x1p-22;
  const bool has_before = before.defined() && before.sizes() == after.sizes();
  const auto change = has_before ? largest(numbers_of(after).sub(numbers_of(before))) : largest(after);
  return (is_half ? 2e-2 : 1e-3) * change + 2 * epsilon * largest(after);
}

}  // namespace

Snapshot::Snapshot(const Plan& plan, at::TensorList inputs) {
  for (const auto& memory : plan.memories) {
    if (!memory.is_written) continue;
    if (memory.kind == MemoryKind::kExternal) save(c10::Storage(memory.recorded.lock()), memory.dtype);
    if (memory.kind == MemoryKind::kInput) save(inputs[memory.input].storage(), memory.dtype);
  }
  for (const auto& call : plan.calls) {
    if (call.op || !call.host.written) continue;
    for (const auto& tensor : call.host.written()) save(tensor.storage(), tensor.scalar_type());
  }
  for (const auto& leaf : plan.leaves) {
    gradients_.push_back({leaf.parameter, leaf.parameter.get()->grad()});
    gradient_values_.push_back(gradients_.back().gradient.defined() ? gradients_.back().gradient.clone()
                                                                    : at::Tensor());
  }
  generators_ = plan.generators;
  for (const auto& generator : generators_) generator_states_.push_back(generator.get_state());
}

void Snapshot::restore() const {
  for (const auto& [storage, values] : storages_) elements(storage, values.scalar_type()).copy_(values);
  for (const auto& [parameter, gradient] : gradients_) {
    if (!parameter.is_gone()) parameter.get()->mutable_grad() = gradient;
  }
  for (size_t i = 0; i < generators_.size(); ++i) at::Generator(generators_[i]).set_state(generator_states_[i]);
}

std::string Snapshot::difference(const Snapshot& other) const {
  for (size_t i = 0; i < gradients_.size(); ++i) {
    if (!same_bytes(gradient_values_[i], other.gradient_values_[i])) {
      return fmt::format("the gradient of a parameter, {}", describe(gradients_[i].parameter.tensor()));
    }
  }
  for (size_t i = 0; i < storages_.size() && i < other.storages_.size(); ++i) {
    if (same_bytes(storages_[i].values, other.storages_[i].values)) continue;
    for (const auto& [parameter, gradient] : gradients_) {
      if (parameter.get()->unsafe_storage().is_alias_of(storages_[i].storage)) {
        return fmt::format("a parameter, {}", describe(parameter.tensor()));
      }
    }
    return fmt::format("a tensor of {} bytes that it changes", storages_[i].values.nbytes());
  }
  for (size_t i = 0; i < generator_states_.size(); ++i) {
    if (!same_bytes(generator_states_[i], other.generator_states_[i])) return "the state of a random generator";
  }
  return "";
}

std::vector<at::Tensor> Snapshot::values_and(const std::vector<at::Tensor>& results) const {
  auto all = gradient_values_;
  for (const auto& saved : storages_) all.push_back(saved.values);
  all.insert(all.end(), generator_states_.begin(), generator_states_.end());
  all.insert(all.end(), results.begin(), results.end());
  return all;
}

void Snapshot::save(const c10::Storage& storage, at::ScalarType dtype) {
  const auto is_it = [&](const Saved& saved) { return saved.storage.is_alias_of(storage); };
  if (std::ranges::none_of(storages_, is_it)) storages_.push_back({storage, elements(storage, dtype).clone()});
}

int64_t checksum(const at::Tensor& tensor) {
  constexpr auto kWord = static_cast<int64_t>(sizeof(int64_t));
  const auto bytes = elements(tensor.storage(), at::kByte);
  const auto size = bytes.numel();
  const bool is_aligned = reinterpret_cast<uintptr_t>(tensor.storage().data()) % kWord == 0;
  const auto whole = is_aligned ? size - size % kWord : 0;
  int64_t sum = 0;  // it wraps around
  if (whole > 0) sum = bytes.narrow(0, 0, whole).view(at::kLong).sum().item<int64_t>();
  if (whole < size) sum += bytes.narrow(0, whole, size - whole).sum().item<int64_t>();
  return sum;
}

bool differ_as_each_other(const std::vector<at::Tensor>& before, const std::vector<at::Tensor>& step,
                          const std::vector<std::vector<at::Tensor>>& replays) {
  const auto& first = replays.front();
  if (std::ranges::any_of(replays, [&](const auto& replay) { return replay.size() != step.size(); })) return false;
  for (size_t i = 0; i < step.size(); ++i) {
    const auto from_step = distance(first[i], step[i]);
    if (from_step == 0) continue;
    double among = 0;
    for (size_t j = 1; j < replays.size(); ++j) {
      for (size_t k = 0; k < j; ++k) among = std::max(among, distance(replays[j][i], replays[k][i]));
    }
    if (!(from_step <= 4 * among + tolerance(i < before.size() ? before[i] : at::Tensor(), step[i]))) return false;
  }
  return true;
}

}  // namespace yoke::train::detail
