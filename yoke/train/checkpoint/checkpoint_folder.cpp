#include "yoke/train/checkpoint/checkpoint_folder.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <exception>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/dist/activity.h"
#include "yoke/dist/group.h"
#include "yoke/dist/on_all_ranks.h"
#include "yoke/train/checkpoint/detail/group_values.h"
#include "yoke/train/checkpoint/detail/sharded_files.h"
#include "yoke/train/checkpoint/detail/whole_file.h"
#include "yoke/train/sharding.h"

namespace yoke::train {
namespace {

namespace fs = std::filesystem;

constexpr auto kSaving = "saving a checkpoint";

/// The data that this rank writes for one save.
struct Save {
  int64_t step = 0;
  bool is_sharded = false;
  TensorSlices slices;
  StringMap metadata;
};

/// A buffer for a tensor: contiguous, and pinned if the tensor is on a GPU. Reuses `old` if it fits.
at::Tensor buffer_for(const at::Tensor& tensor, const at::Tensor& old) {
  const bool pinned = tensor.is_cuda();
  if (old.defined() && old.layout() == at::kStrided && old.sizes() == tensor.sizes() &&
      old.scalar_type() == tensor.scalar_type() && (!pinned || old.is_pinned())) {
    return old;
  }
  return at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type()).pinned_memory(pinned));
}

/// Replaces the values by copies. A copy reuses the memory of `old` where it fits.
void take_copies(TensorSlices& slices, const TensorSlices& old) {
  const c10::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> buffers;
  for (const auto& slice : old) buffers.emplace(slice.name, slice.values);
  std::vector<at::Device> devices;
  for (auto& slice : slices) {
    const auto tensor = slice.values;
    if (!tensor.defined() || tensor.layout() != at::kStrided || tensor.is_meta() || tensor.is_quantized()) {
      continue;  // the format will refuse this tensor and name it
    }
    const auto found = buffers.find(slice.name);
    slice.values = buffer_for(tensor, found == buffers.end() ? at::Tensor() : found->second);
    slice.values.copy_(tensor.detach(), /*non_blocking=*/true);
    if (!tensor.is_cpu() && std::ranges::find(devices, tensor.device()) == devices.end()) {
      devices.push_back(tensor.device());
    }
  }
  for (const auto& device : devices) {
    const c10::impl::VirtualGuardImpl guard(device.type());
    guard.getStream(device).synchronize();
  }
}

/// Returns the slices as tensors with their shapes. REQUIRES: each slice is a whole tensor.
TensorMap whole_tensors(const TensorSlices& slices) {
  TensorMap tensors;
  for (const auto& slice : slices) {
    const bool is_in_shape = slice.values.sizes() == slice.shape && sharding_of(slice.values) == nullptr;
    tensors.emplace(slice.name, is_in_shape ? slice.values.detach() : slice.flat().view(slice.shape));
  }
  return tensors;
}

}  // namespace

struct CheckpointFolder::Impl {
  StepFolder files;
  Warn warn;

  Save copy;                           // only the writer, while it runs, uses this and the next member
  std::optional<dist::Group> channel;  // connects the ranks' writers, separately from the training's collectives
  std::thread writer;
  std::exception_ptr error;  // only the writer uses this until it is joined

  mutable std::mutex mutex;
  SaveProgress progress;  // guarded by the mutex
  Clock::time_point writing_since;

  Save prepare(int64_t step, const TrainState& state, const StringMap& metadata) const;
  void write(dist::Group& group, const Save& save, const OnWritten& on_written) const;
  void write_file(const Save& save, const OnWritten& on_written) const;
  void write_copy() noexcept;
  void join() {
    if (writer.joinable()) writer.join();
  }
};

/// Collective. Decides which rank writes which data.
Save CheckpointFolder::Impl::prepare(int64_t step, const TrainState& state, const StringMap& metadata) const {
  auto& group = state.group();
  Save save{.step = step, .is_sharded = false, .slices = {}, .metadata = {}};
  TrainState::Snapshot snapshot;
  std::string description, groups;
  snapshot = state.snapshot();
  on_all_ranks(group, fmt::format("saving step {} in {}: nothing was written", step, files.path().string()), [&] {
    if (step < 0) throw Error(ErrorCode::kInvalidArgument, "saving in {}: the step is {}", files.path().string(), step);
    save.metadata = snapshot.values;
    for (const auto& [name, value] : metadata) {
      if (name.starts_with("yoke.")) {
        throw Error(ErrorCode::kInvalidArgument, "saving in {}: the metadata name '{}' is reserved by the format",
                    files.path().string(), name);
      }
      if (!save.metadata.emplace(name, value).second) {
        throw Error(ErrorCode::kInvalidArgument,
                    "saving in {}: the state has a value '{}' already: give the metadata another name",
                    files.path().string(), name);
      }
    }
    files.check_metric(step, save.metadata);
    description = describe_slices(snapshot.slices);
    groups = detail::describe_group_values(state);
  });
  std::vector<std::string> steps, groups_by_rank;
  for (const auto& text : group.all_gather_text(fmt::format("{}\n{}", step, groups))) {
    const auto end = text.find('\n');
    steps.push_back(text.substr(0, end));
    groups_by_rank.push_back(text.substr(end + 1));
  }
  if (const auto other = std::ranges::find_if(steps, [&](const auto& text) { return text != steps[0]; });
      other != steps.end()) {
    throw Error(ErrorCode::kInvalidArgument, "saving in {}: rank 0 gives step {}, rank {} step {}",
                files.path().string(), steps[0], other - steps.begin(), *other);
  }
  const auto descriptions = group.all_gather_text(description);
  const auto plan = plan_slices(descriptions);
  detail::refuse_group_values(state, fmt::format("saving step {} in {}", step, files.path().string()), groups_by_rank,
                              descriptions);
  save.is_sharded = std::ranges::any_of(plan, [](const PlannedTensor& tensor) {
    return tensor.parts.size() > 1 || (tensor.parts.size() == 1 && tensor.parts[0].rank != 0);
  });
  save.slices = own_slices(snapshot.slices, plan, group.rank());
  return save;
}

/// Collective.
void CheckpointFolder::Impl::write(dist::Group& group, const Save& save, const OnWritten& on_written) const {
  if (save.is_sharded) {
    write_sharded(group, files.folder_of(save.step), save.step, save.slices, save.metadata, on_written);
    if (group.rank() == 0) {
      std::error_code ignored;
      fs::remove(files.file_of(save.step), ignored);  // the same step's file, from a run that was not sharded
    }
  } else {
    on_all_ranks(group, fmt::format("the checkpoint of step {} was not written", save.step), [&] {
      if (group.rank() == 0) write_file(save, on_written);
    });
  }
  on_all_ranks(group, "removing older checkpoints", [&] {  // so that all ranks see the same files afterwards
    if (group.rank() == 0) files.prune(save.step);
  });
}

void CheckpointFolder::Impl::write_file(const Save& save, const OnWritten& on_written) const {
  make_folder(files.path());
  const auto before = files.steps();
  try {
    write_whole_file(files.file_of(save.step), save.step, whole_tensors(save.slices), save.metadata, on_written);
    remove_sharded(files.folder_of(save.step));
  } catch (const Error& failure) {
    if (before.empty()) throw;
    throw Error(failure.code(), "{}; {} is as it was", failure.what(),
                files.path_of(before.back()).filename().string());
  }
}

void CheckpointFolder::Impl::write_copy() noexcept {
  try {
    write(*channel, copy, [&](int64_t written_bytes, int64_t num_bytes) {
      const std::lock_guard lock(mutex);
      progress.written_bytes = written_bytes;
      progress.num_bytes = num_bytes;
    });
  } catch (...) {
    error = std::current_exception();
  }
  const std::lock_guard lock(mutex);
  progress.writing = Clock::now() - writing_since;
  progress.done = true;
}

CheckpointFolder::CheckpointFolder(fs::path folder, const CheckpointFolderOptions& options)
    : impl_(new Impl{.files = StepFolder(std::move(folder), options), .warn = options.warn}) {
  impl_->progress.done = true;
}

CheckpointFolder::CheckpointFolder(CheckpointFolder&&) noexcept = default;

CheckpointFolder::~CheckpointFolder() {
  if (!impl_) return;
  impl_->join();
  if (!impl_->error) return;
  try {
    std::rethrow_exception(impl_->error);
  } catch (const std::exception& error) {
    try {
      impl_->warn(fmt::format("a checkpoint was not written: {}", error.what()));
    } catch (...) {  // a destructor cannot report this
    }
  }
}

fs::path CheckpointFolder::save(int64_t step, const TrainState& state, const StringMap& metadata) {
  finish();
  const dist::Activity activity(state.group(), kSaving);
  impl_->write(state.group(), impl_->prepare(step, state, metadata), {});
  return path_of(step);
}

void CheckpointFolder::save_async(int64_t step, const TrainState& state, const StringMap& metadata) {
  const auto begin = Clock::now();
  finish();
  const dist::Activity activity(state.group(), kSaving);
  auto save = impl_->prepare(step, state, metadata);
  if (!impl_->channel) impl_->channel = state.group().split(0);
  on_all_ranks(state.group(), fmt::format("saving step {}: no room for a copy of the state", step),
               [&] { take_copies(save.slices, impl_->copy.slices); });
  impl_->copy = std::move(save);
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->writing_since = Clock::now();
    impl_->progress = {.step = step, .held = impl_->writing_since - begin};
  }
  try {
    impl_->writer = std::thread([impl = impl_.get()] { impl->write_copy(); });
  } catch (const std::system_error& error) {
    const std::lock_guard lock(impl_->mutex);
    impl_->progress.done = true;
    throw Error(ErrorCode::kUnavailable, "saving step {}: no thread to write it: {}", step, error.what());
  }
}

void CheckpointFolder::finish() {
  impl_->join();
  if (const auto failed = std::exchange(impl_->error, nullptr)) std::rethrow_exception(failed);
}

void CheckpointFolder::abandon() {
  impl_->join();
  impl_->error = nullptr;
  impl_->channel.reset();
}

bool CheckpointFolder::busy() const {
  const std::lock_guard lock(impl_->mutex);
  return !impl_->progress.done;
}

SaveProgress CheckpointFolder::progress() const {
  const std::lock_guard lock(impl_->mutex);
  auto progress = impl_->progress;
  if (!progress.done) progress.writing = Clock::now() - impl_->writing_since;
  return progress;
}

std::optional<StoredCheckpoint> CheckpointFolder::load_latest(TrainState& state) const {
  const dist::Activity activity(state.group(), "loading a checkpoint");
  auto checkpoint = impl_->files.newest_sound(state.group());
  if (checkpoint) state.load(*checkpoint, impl_->warn);
  return checkpoint;
}

std::optional<StoredCheckpoint> CheckpointFolder::newest(dist::Group& group) const {
  return impl_->files.newest_sound(group);
}

std::optional<StoredCheckpoint> CheckpointFolder::newest() const { return impl_->files.newest_sound(); }

std::vector<int64_t> CheckpointFolder::steps() const { return impl_->files.steps(); }
std::optional<int64_t> CheckpointFolder::best_step() const { return impl_->files.best_step(); }
fs::path CheckpointFolder::path_of(int64_t step) const { return impl_->files.path_of(step); }
const fs::path& CheckpointFolder::folder() const { return impl_->files.path(); }

}  // namespace yoke::train
