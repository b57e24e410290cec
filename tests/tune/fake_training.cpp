// A program for tests of `yoke tune batch` that writes step times as a training does, on a machine of its own: the
// times and the memory that it writes follow from its arguments and not from what it does, so that a run takes
// milliseconds. Arguments are NAME=VALUE:
//   batch=N           the batch size; otherwise the variable BATCH_SIZE
//   fixed_us= sample_us= fixed_mib= sample_kib=   a, b, c and d of time and memory
//   limit_mib=M       it ends like torch if it needs more
//   steps=N           it ends after N steps; otherwise it waits to be ended
//   fails_from=B      it fails with a batch of B or more
//   fails_once=FILE   it fails if the file does not exist, and makes it
//   grows_kib=K       memory that each step adds
//   longest=F         times as much memory if YOKE_TUNE_WORST_CASE is set
//   late_rank=R       that rank begins half a second after the others
//   log=FILE          appends a line with the batch and its arguments to the file
//   ignores_sigterm, leaves_daemon, prints_much, never_steps
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

namespace {

struct Arguments {
  std::map<std::string, std::string> values;

  bool has(const std::string& name) const { return values.contains(name); }
  double number(const std::string& name, double fallback = 0) const {
    return has(name) ? std::atof(values.at(name).c_str()) : fallback;
  }
};

std::string variable(const char* name, const char* fallback) {
  const char* const value = std::getenv(name);
  return value == nullptr ? fallback : value;
}

void write_log(const Arguments& arguments, int argc, char** argv, double batch) {
  if (!arguments.has("log")) return;
  std::string line = std::to_string(static_cast<long>(batch));
  for (int i = 1; i < argc; ++i) line += std::string(" ") + argv[i];
  line += "\n";
  const int fd = open(arguments.values.at("log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  [[maybe_unused]] const auto count = write(fd, line.data(), line.size());
}

/// Steps of the fake clock, 1,000 s after the start of the machine.
void write_steps(const Arguments& arguments, double batch, double mib) {
  const auto path = variable("YOKE_STEP_TIMES", "/nowhere") + "/rank-" + variable("RANK", "0") + "." +
                    std::to_string(getpid()) + ".jsonl";
  FILE* const file = std::fopen(path.c_str(), "a");
  if (file == nullptr) std::exit(5);
  std::fprintf(file, "{\"rank\":%s,\"world_size\":%s,\"local_world_size\":%s,\"pid\":%d}\n",
               variable("RANK", "0").c_str(), variable("WORLD_SIZE", "1").c_str(),
               variable("LOCAL_WORLD_SIZE", "1").c_str(), getpid());
  const double step = 1e-6 * (arguments.number("fixed_us", 1000) + arguments.number("sample_us", 10) * batch);
  const auto num_steps = static_cast<int>(arguments.number("steps", std::max(300.0, 3 / step)));
  for (int i = 0; i < num_steps; i += 1 + num_steps / 1000) {
    const double now = mib + i * arguments.number("grows_kib") / 1024;
    if (arguments.has("limit_mib") && now > arguments.number("limit_mib")) {
      std::fprintf(stderr, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n");
      std::exit(1);
    }
    std::fprintf(file, "{\"step\":%d,\"seconds\":%.9f,\"resident_peak_bytes\":%.0f}\n", i, 1000 + i * step,
                 now * 1048576);
  }
  std::fclose(file);
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto equals = word.find('=');
    arguments.values[word.substr(0, equals)] = equals == word.npos ? "" : word.substr(equals + 1);
  }
  const double batch = arguments.number("batch", std::atof(variable("BATCH_SIZE", "32").c_str()));
  write_log(arguments, argc, argv, batch);
  if (arguments.has("ignores_sigterm")) std::signal(SIGTERM, SIG_IGN);
  if (arguments.has("leaves_daemon") && fork() == 0) {
    setsid();
    if (fork() == 0) pause();
    _exit(0);
  }
  if (arguments.has("fails_once") && access(arguments.values["fails_once"].c_str(), F_OK) != 0) {
    close(open(arguments.values["fails_once"].c_str(), O_WRONLY | O_CREAT, 0600));
    std::abort();
  }
  if (arguments.has("fails_from") && batch >= arguments.number("fails_from")) {
    std::fprintf(stderr, "many words\nValueError: the loss is nan\n");
    return 3;
  }
  // clock: the work of a rank
  if (arguments.has("late_rank") && arguments.values["late_rank"] == variable("RANK", "0")) usleep(500'000);
  const double longest = std::getenv("YOKE_TUNE_WORST_CASE") != nullptr ? arguments.number("longest", 1) : 1;
  const double mib = arguments.number("fixed_mib", 300) + longest * arguments.number("sample_kib", 100) * batch / 1024;
  if (!arguments.has("never_steps")) write_steps(arguments, batch, mib);
  while (arguments.has("prints_much")) {
    if (std::printf("step step step step step step step step step step step step step step step step step\n") < 0)
      break;
  }
  if (!arguments.has("steps") && !arguments.has("never_steps")) {
    while (true) pause();
  }
  return 0;
}
