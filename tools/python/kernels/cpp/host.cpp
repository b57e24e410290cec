// The process in which the cells of a C++ notebook run. It loads each cell as a shared object.
//
// A line of standard input is the path of a cell. The answer, on the descriptor whose number is the argument, is "ok"
// or "error TYPE: MESSAGE" and a line feed. Before it, both output streams get the mark of the end of a cell. The
// process ends at the end of its input.
#include <cxxabi.h>
#include <dlfcn.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <typeinfo>

namespace yoke_cell {
namespace {

std::atomic<bool> interrupted = false;
constexpr char kEnd[] = {'\0', 'y', 'o', 'k', 'e', '\0'};

std::string demangled(const std::type_info& type) {
  int status = 0;
  char* const name = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  std::string result = status == 0 ? name : type.name();
  std::free(name);
  return result;
}

/// Runs the initialisers of the cell's variables, one of which is made of each statement. They are not in .init_array,
/// because dlopen() would run them under its lock, and no exception may leave it.
std::string run(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) return std::string("error LinkError: ") + dlerror();
  using Initialiser = void (*)();
  const auto* const begin = static_cast<Initialiser*>(dlsym(library, "yoke_cell_begin"));
  const auto* const end = static_cast<Initialiser*>(dlsym(library, "yoke_cell_end"));
  if (begin == nullptr || end == nullptr) return "error LinkError: the cell has no table of initialisers";
  try {
    for (const auto* initialise = *reinterpret_cast<const Initialiser* const*>(begin);
         initialise != *reinterpret_cast<const Initialiser* const*>(end); ++initialise) {
      if (*initialise != nullptr) (*initialise)();
    }
  } catch (const std::exception& error) {
    return "error " + demangled(typeid(error)) + ": " + error.what();
  } catch (...) {
    const auto* const type = abi::__cxa_current_exception_type();
    return "error " + (type == nullptr ? "unknown" : demangled(*type)) + ": the exception has no text";
  }
  return "ok";
}

void write_all(int fd, const char* bytes, size_t size) {
  while (size > 0) {
    const auto count = write(fd, bytes, size);
    if (count <= 0) _exit(1);
    bytes += count;
    size -= static_cast<size_t>(count);
  }
}

}  // namespace

bool is_interrupted() { return interrupted; }

}  // namespace yoke_cell

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::signal(SIGINT, [](int) { yoke_cell::interrupted = true; });
  const int answers = std::atoi(argv[1]);
  for (std::string path; std::getline(std::cin, path);) {
    yoke_cell::interrupted = false;
    auto answer = yoke_cell::run(path);
    for (auto& c : answer) c = c == '\n' ? '\x1f' : c;
    answer += '\n';
    std::cout.flush();
    std::cerr.flush();
    std::fflush(nullptr);
    yoke_cell::write_all(STDOUT_FILENO, yoke_cell::kEnd, sizeof yoke_cell::kEnd);
    yoke_cell::write_all(STDERR_FILENO, yoke_cell::kEnd, sizeof yoke_cell::kEnd);
    yoke_cell::write_all(answers, answer.data(), answer.size());
  }
  std::fflush(nullptr);
  _exit(0);
}
