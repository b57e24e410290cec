// Parts of a TrainState that differ between ranks: generators, thread counts, meters. Each part is saved as one tensor
// with a row per rank.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/full.h>

#include <mutex>
#include <optional>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/dist/group.h"
#include "yoke/train/checkpoint/detail/state_part.h"
#include "yoke/train/detail/describe.h"
#include "yoke/train/meter.h"

namespace yoke::train {
namespace {

/// Returns this rank's row. If the checkpoint has no row for this rank, warns and returns nullopt.
std::optional<at::Tensor> row_of_rank(const PartSource& source) {
  const auto& group = source.group;
  if (!source.tensors.tensors.contains("")) {
    source.warn(fmt::format("the checkpoint has no {}; it stays as it is", source.name));
    return std::nullopt;
  }
  const auto rows = read_whole(source.tensors, "");
  if (rows.dim() == 0) throw Error(ErrorCode::kDataLoss, "the checkpoint's {} is {}", source.name, describe(rows));
  if (rows.size(0) != group.size()) {
    source.warn(
        fmt::format("the checkpoint's {} is for {} ranks, and this job has {}: the run continues, but not bit for bit",
                    source.name, rows.size(0), group.size()));
  }
  if (group.rank() >= rows.size(0)) return std::nullopt;
  return rows[group.rank()].cpu().clone();
}

at::Tensor state_of(at::Generator& generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();  // uint8 [bytes]
}

void set_state(at::Generator& generator, const at::Tensor& state, const std::string& name) {
  const std::lock_guard lock(generator.mutex());
  try {
    generator.set_state(state);
  } catch (const c10::Error& error) {
    throw Error(ErrorCode::kDataLoss, "the checkpoint's {} is not a state of this generator: {}", name,
                error.what_without_backtrace());
  }
}

}  // namespace

TrainState& TrainState::add_generator(const std::string& name, at::Generator generator) {
  struct GeneratorPart : Part {
    at::Generator generator;
    explicit GeneratorPart(at::Generator of) : generator(std::move(of)) {}
    bool is_optional() const override { return true; }
    void save(const std::string& name, Snapshot&, std::vector<RankRow>& rows) override {
      rows.push_back({name, state_of(generator), {}});
    }
    PreparedPart prepare(const PartSource& source) override {
      const auto row = row_of_rank(source);
      if (!row) return {[] {}, {}};
      auto trial = generator.clone();
      set_state(trial, *row, source.name);
      return {[this, row = *row, name = source.name] { set_state(generator, row, name); }, {}};
    }
  };
  return add_part(name, std::make_unique<GeneratorPart>(std::move(generator)));
}

TrainState& TrainState::add_generators() {
  add_generator("generator/cpu", at::detail::getDefaultCPUGenerator());
  const auto device = group().device();
  if (device.is_cuda()) {
    add_generator("generator/cuda", at::detail::getCUDAHooks().getDefaultGenerator(device.index()));
  }
  return *this;
}

TrainState& TrainState::add_num_threads(ThreadRule rule) {
  struct NumThreadsPart : Part {
    ThreadRule rule;
    explicit NumThreadsPart(ThreadRule given) : rule(given) {}
    bool is_optional() const override { return true; }
    void save(const std::string& name, Snapshot&, std::vector<RankRow>& rows) override {
      rows.push_back({name, at::full({}, at::get_num_threads(), at::kLong), {}});
    }
    PreparedPart prepare(const PartSource& source) override {
      const auto row = row_of_rank(source);
      if (!row) return {[] {}, {}};
      constexpr int64_t kMost = 4096;  // so that a manipulated file cannot start a million threads
      if (row->scalar_type() != at::kLong || row->dim() != 0 || row->item<int64_t>() < 1 ||
          row->item<int64_t>() > kMost) {
        throw Error(ErrorCode::kDataLoss, "the checkpoint's {} is not a number of threads", source.name);
      }
      const auto recorded = static_cast<int>(row->item<int64_t>());
      const int own = at::get_num_threads();
      if (recorded != own && rule == ThreadRule::kWarn) {
        source.warn(
            fmt::format("the checkpoint was made with {} threads per rank, and this run has {}: the run continues, but "
                        "not bit for bit",
                        recorded, own));
      }
      return {[recorded, adopts = rule == ThreadRule::kAdopt && recorded != own] {
                if (adopts) at::set_num_threads(recorded);
              },
              {}};
    }
  };
  return add_part("num_threads", std::make_unique<NumThreadsPart>(rule));
}

TrainState& TrainState::add_meter(const std::string& name, Meter& meter) {
  struct MeterPart : Part {
    Meter& meter;
    explicit MeterPart(Meter& of) : meter(of) {}
    void save(const std::string& name, Snapshot&, std::vector<RankRow>& rows) override {
      rows.push_back({name, meter.state(), [](const at::Tensor& all) { return all.unsqueeze(0); }});  // [1, ranks, 2]
    }
    PreparedPart prepare(const PartSource& source) override {
      if (!source.tensors.tensors.contains("")) {
        throw Error(ErrorCode::kInvalidArgument, "{}: it is not a meter in the checkpoint", source.tensors.what);
      }
      return {[this, rows = read_whole(source.tensors, "").cpu().clone(), &group = source.group] {
                restore_meters(group, {&meter}, rows);
              },
              {}};
    }
  };
  return add_part(name, std::make_unique<MeterPart>(meter));
}

}  // namespace yoke::train
