#include "yoke/tui/app.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <thread>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/device/process/signal.h"
#include "yoke/tui/view.h"

namespace yoke::tui {
namespace {

KillAnswer perform(const KillRequest& request, const std::filesystem::path& sysroot) {
  KillAnswer answer{.request = request};
  try {
    const device::ProcessHandle process(request.process.pid, request.process.start_ticks.value_or(-1),
                                        sysroot / "proc");
    process.signal(request.is_forced ? SIGKILL : SIGTERM);
  } catch (const Error& error) {
    answer.error = error.what();
  }
  return answer;
}

Model make_model(Glyphs glyphs, Size size, const SamplerOptions& options) {
  Model model{.glyphs = glyphs, .is_recording = options.is_recording, .size = size};
  if (!options.is_recording) model.user = device::user_name(geteuid());
  return model;
}

/// Waits for keys, signals and samples. Returns false if the terminal has disappeared.
bool wait_for_input(const Terminal& terminal, const Sampler& sampler) {
  std::array<pollfd, 3> polls = {pollfd{STDIN_FILENO, POLLIN, 0}, pollfd{terminal.signal_fd(), POLLIN, 0},
                                 pollfd{sampler.ready_fd(), POLLIN, 0}};
  if (poll(polls.data(), polls.size(), -1) < 0) return errno == EINTR;
  return (polls[0].revents & (POLLHUP | POLLERR | POLLNVAL)) == 0;
}

}  // namespace

int run(device::Source& source, std::unique_ptr<Terminal> given_terminal, Glyphs glyphs, const AppOptions& options) {
  auto model = make_model(glyphs, given_terminal->size(), options.sampling);
  model.is_readonly = options.is_readonly;
  Sampler sampler(source, options.sampling, want_of(model));
  const auto terminal = std::move(given_terminal);  // declared after the sampler, so that it is destroyed first
  terminal->draw(view(model));
  const auto apply = [&](const Event& event) {
    model = update(std::move(model), event);
    if (const auto request = std::exchange(model.requested, std::nullopt)) {
      model = update(std::move(model), perform(*request, options.sampling.sysroot));
    }
  };
  while (wait_for_input(*terminal, sampler)) {
    bool must_draw = false;
    while (const auto input = terminal->next()) {
      if (input->ending_signal != 0) return 128 + input->ending_signal;
      if (input->event) apply(*input->event);
      if (model.has_quit) return 0;
      must_draw = must_draw || input->event || input->must_draw;
    }
    if (auto sample = sampler.take()) {
      apply(SampleEvent{*std::move(sample)});
      must_draw = true;
    }
    sampler.set_want(want_of(model));
    if (must_draw) terminal->draw(view(model));
  }
  return 128 + SIGHUP;
}

std::string print_once(device::Source& source, const SamplerOptions& options, Glyphs glyphs, int64_t width) {
  auto model = make_model(glyphs, {width, 1000}, options);
  model.is_plain = true;
  const auto want = want_of(model);
  if (!options.is_recording) {
    // The utilisation of the CPU and of each process is computed from two samples.
    take_sample(source, options, want);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  model = update(std::move(model), SampleEvent{take_sample(source, options, want)});
  return plain_page(std::move(model));
}

}  // namespace yoke::tui
