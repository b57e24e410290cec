#include "yoke/train/watch/profiler.h"

#include <fmt/format.h>

#include "yoke/base/error.h"
#include "yoke/dist/group.h"
#include "yoke/train/warn.h"
#include "yoke/train/watch/detail/profile_window.h"
#include "yoke/train/watch/step_end.h"

namespace yoke::train {

struct Profiler::Impl {
  Impl(const detail::ProfileWindowOptions& options, bool steps_by_hand)
      : request(options.request), window(options), is_by_hand(steps_by_hand) {
    window.begin_step(0);
  }

  void begin_next_step() { window.begin_step(++num_steps); }

  const ProfileRequest request;
  detail::ProfileWindow window;
  const bool is_by_hand;
  int64_t num_steps = 0;
};

namespace {

/// Registered for the rest of the process, because observers cannot be removed. The Profiler may be destroyed earlier.
template <class Impl>
class EndsSteps : public StepObserver {
 public:
  explicit EndsSteps(std::weak_ptr<Impl> profiler) : profiler_(std::move(profiler)) {}

  void on_step(int64_t) override {
    const auto profiler = profiler_.lock();
    if (!profiler) return;
    try {
      profiler->begin_next_step();
    } catch (const std::exception& error) {
      warn_on_stderr(error.what());
    }
  }

 private:
  std::weak_ptr<Impl> profiler_;
};

detail::ProfileWindowOptions window_options(int64_t rank, int64_t world_size, const ProfilerOptions& options) {
  if (options.folder.empty()) throw Error(ErrorCode::kInvalidArgument, "profiler: name a folder for the traces");
  std::error_code error;
  std::filesystem::create_directories(options.folder, error);
  if (error) throw system_error(error.value(), "profiler: making the folder " + options.folder.native());
  return {.request = {.folder = std::filesystem::absolute(options.folder).native(),
                      .first = options.wait + options.warmup,
                      .warmup = options.warmup,
                      .active = options.active,
                      .detail = options.light ? ProfileDetail::kAnnotations : ProfileDetail::kOperations},
          .rank = rank,
          .world_size = world_size};
}

}  // namespace

Profiler::Profiler(const dist::Group& world, const ProfilerOptions& options)
    : Profiler(world.rank(), world.size(), options) {}

Profiler::Profiler(int64_t rank, int64_t world_size, const ProfilerOptions& options)
    : impl_(std::make_shared<Impl>(window_options(rank, world_size, options), options.steps_by_hand)) {
  if (!options.steps_by_hand) add_step_observer(std::make_unique<EndsSteps<Impl>>(impl_));
}

Profiler::Profiler(Profiler&&) noexcept = default;

Profiler::~Profiler() {
  if (!impl_ || impl_->window.is_over()) return;
  const auto& request = impl_->request;
  if (impl_->num_steps == 0) {
    warn_on_stderr(
        impl_->is_by_hand
            ? "profiler: there is no trace, because the program did not call Profiler::step()"
            : "profiler: there is no trace, because no optimizer of yoke has stepped; with another optimizer, set "
              "ProfilerOptions::steps_by_hand and call Profiler::step() after each step");
    return;
  }
  warn_on_stderr(
      fmt::format("profiler: the training ended after {} of the {} steps that it takes to record {}, so there "
                  "is no trace; see ProfilerOptions::wait",
                  impl_->num_steps, request.first + request.active, request.active));
}

void Profiler::step() {
  if (!impl_->is_by_hand) {
    throw Error(ErrorCode::kFailedPrecondition,
                "profiler: the optimizers of yoke end the steps, so step() would count each of them twice; set "
                "ProfilerOptions::steps_by_hand if the program has other optimizers");
  }
  impl_->begin_next_step();
}

bool Profiler::is_done() const { return impl_->window.has_trace(); }
const std::filesystem::path& Profiler::trace() const { return impl_->window.trace(); }

}  // namespace yoke::train
