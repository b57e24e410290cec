#include "yoke/slurm/words/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>

#include "yoke/base/text.h"

namespace yoke::slurm::check {
namespace {

constexpr OptionSpec kOptions[] = {
    {"accel-bind", 0, Value::kRequired, kSrun},
    {"account", 'A', Value::kRequired, kAll},
    {"acctg-freq", 0, Value::kRequired, kAll},
    {"array", 'a', Value::kRequired, kSbatch},
    {"async", 0, Value::kNone, kSrun, "26.05"},
    {"batch", 0, Value::kRequired, kSbatch},
    {"bb", 0, Value::kRequired, kAll},
    {"bbf", 0, Value::kRequired, kAll},
    {"bcast", 0, Value::kOptional, kSrun},
    {"bcast-exclude", 0, Value::kRequired, kSrun},
    {"begin", 'b', Value::kRequired, kAll},
    {"bell", 0, Value::kNone, kSalloc},
    {"chdir", 'D', Value::kRequired, kAll},
    {"cluster", 0, Value::kRequired, kAll},
    {"cluster-constraint", 0, Value::kRequired, kAll},
    {"clusters", 'M', Value::kRequired, kAll},
    {"comment", 0, Value::kRequired, kAll},
    {"compress", 0, Value::kOptional, kSrun},
    {"consolidate-segments", 0, Value::kNone, kAll, "25.11"},
    {"constraint", 'C', Value::kRequired, kAll},
    {"container", 0, Value::kRequired, kAll},
    {"container-id", 0, Value::kRequired, kAll, "23.02"},
    {"container-type", 0, Value::kRequired, kAll, "26.05"},
    {"context", 0, Value::kRequired, kAll},
    {"contiguous", 0, Value::kNone, kAll},
    {"core-spec", 'S', Value::kRequired, kAll},
    {"cores-per-socket", 0, Value::kRequired, kAll},
    {"cpu-bind", 0, Value::kRequired, kSrun},
    {"cpu-freq", 0, Value::kRequired, kAll},
    {"cpus-per-gpu", 0, Value::kRequired, kAll},
    {"cpus-per-task", 'c', Value::kRequired, kAll},
    {"deadline", 0, Value::kRequired, kAll},
    {"debugger-test", 0, Value::kNone, kSrun},
    {"delay-boot", 0, Value::kRequired, kAll},
    {"dependency", 'd', Value::kRequired, kAll},
    {"disable-status", 'X', Value::kNone, kSrun},
    {"distribution", 'm', Value::kRequired, kAll},
    {"epilog", 0, Value::kRequired, kSrun},
    {"error", 'e', Value::kRequired, kSbatch | kSrun},
    {"exact", 0, Value::kNone, kSrun},
    {"exclude", 'x', Value::kRequired, kAll},
    {"exclusive", 0, Value::kOptional, kAll},
    {"export", 0, Value::kRequired, kSbatch | kSrun},
    {"export-file", 0, Value::kRequired, kSbatch},
    {"external", 0, Value::kNone, kSbatch, "25.05"},
    {"external-launcher", 0, Value::kOptional, kSrun, "23.11"},
    {"extra", 0, Value::kRequired, kAll, "23.02"},
    {"extra-node-info", 'B', Value::kRequired, kAll},
    {"get-user-env", 0, Value::kOptional, kSbatch | kSalloc},
    {"gid", 0, Value::kRequired, kAll},
    {"gpu-bind", 0, Value::kRequired, kAll},
    {"gpu-freq", 0, Value::kRequired, kAll},
    {"gpus", 'G', Value::kRequired, kAll},
    {"gpus-per-node", 0, Value::kRequired, kAll},
    {"gpus-per-socket", 0, Value::kRequired, kAll},
    {"gpus-per-task", 0, Value::kRequired, kAll},
    {"gres", 0, Value::kRequired, kAll},
    {"gres-flags", 0, Value::kRequired, kAll},
    {"help", 'h', Value::kNone, kAll},
    {"het-group", 0, Value::kRequired, kSrun},
    {"hint", 0, Value::kRequired, kAll},
    {"hold", 'H', Value::kNone, kAll},
    {"ignore-pbs", 0, Value::kNone, kSbatch},
    {"ignore-signals", 0, Value::kRequired, kSrun, "26.05"},
    {"immediate", 'I', Value::kOptional, kSrun | kSalloc},
    {"input", 'i', Value::kRequired, kSbatch | kSrun},
    {"interactive", 0, Value::kNone, kSrun},
    {"job-name", 'J', Value::kRequired, kAll},
    {"jobid", 0, Value::kRequired, kSrun},
    {"kill-command", 'K', Value::kOptional, kSalloc},
    {"kill-on-bad-exit", 'K', Value::kOptional, kSrun},
    {"kill-on-invalid-dep", 0, Value::kRequired, kSbatch},
    {"label", 'l', Value::kNone, kSrun},
    {"licenses", 'L', Value::kRequired, kAll},
    {"mail-type", 0, Value::kRequired, kAll},
    {"mail-user", 0, Value::kRequired, kAll},
    {"mcs-label", 0, Value::kRequired, kAll},
    {"mem", 0, Value::kRequired, kAll},
    {"mem-bind", 0, Value::kRequired, kAll},
    {"mem-per-cpu", 0, Value::kRequired, kAll},
    {"mem-per-gpu", 0, Value::kRequired, kAll},
    {"mem-update", 0, Value::kRequired, kAll, "26.05"},
    {"mincpus", 0, Value::kRequired, kAll},
    {"mpi", 0, Value::kRequired, kSrun},
    {"msg-timeout", 0, Value::kRequired, kSrun},
    {"multi-prog", 0, Value::kNone, kSrun},
    {"network", 0, Value::kRequired, kAll},
    {"nice", 0, Value::kOptional, kAll},
    {"no-allocate", 'Z', Value::kNone, kSrun},
    {"no-bell", 0, Value::kNone, kSalloc},
    {"no-kill", 'k', Value::kOptional, kAll},
    {"no-requeue", 0, Value::kNone, kSbatch},
    {"no-shell", 0, Value::kNone, kSalloc},
    {"nodefile", 'F', Value::kRequired, kAll},
    {"nodelist", 'w', Value::kRequired, kAll},
    {"nodes", 'N', Value::kRequired, kAll},
    {"ntasks", 'n', Value::kRequired, kAll},
    {"ntasks-per-core", 0, Value::kRequired, kAll},
    {"ntasks-per-gpu", 0, Value::kRequired, kAll},
    {"ntasks-per-node", 0, Value::kRequired, kAll},
    {"ntasks-per-socket", 0, Value::kRequired, kAll},
    {"ntasks-per-tres", 0, Value::kRequired, kAll},
    {"oom-kill-step", 0, Value::kOptional, kAll, "24.11"},
    {"open-mode", 0, Value::kRequired, kSbatch | kSrun},
    {"output", 'o', Value::kRequired, kSbatch | kSrun},
    {"overcommit", 'O', Value::kNone, kAll},
    {"overlap", 0, Value::kOptional, kSrun},
    {"oversubscribe", 's', Value::kNone, kAll},
    {"pack-group", 0, Value::kRequired, kSrun},
    {"parsable", 0, Value::kNone, kSbatch},
    {"parsable", 0, Value::kNone, kSrun, "26.05"},
    {"partition", 'p', Value::kRequired, kAll},
    {"power", 0, Value::kRequired, kAll, "", "23.11"},
    {"prefer", 0, Value::kRequired, kAll},
    {"preserve-env", 'E', Value::kNone, kSrun},
    {"priority", 0, Value::kRequired, kAll},
    {"profile", 0, Value::kRequired, kAll},
    {"prolog", 0, Value::kRequired, kSrun},
    {"propagate", 0, Value::kOptional, kSbatch | kSrun},
    {"pty", 0, Value::kOptional, kSrun},
    {"qos", 'q', Value::kRequired, kAll},
    {"quiet", 'Q', Value::kNone, kAll},
    {"quit-on-interrupt", 0, Value::kNone, kSrun},
    {"reboot", 0, Value::kNone, kAll},
    {"relative", 'r', Value::kRequired, kSrun},
    {"requeue", 0, Value::kOptional, kSbatch},
    {"reservation", 0, Value::kRequired, kAll},
    {"resources", 0, Value::kRequired, kAll, "25.11"},
    {"resv-ports", 0, Value::kOptional, kSrun},
    {"segment", 0, Value::kRequired, kAll, "24.05"},
    {"send-libs", 0, Value::kOptional, kSrun},
    {"signal", 0, Value::kRequired, kAll},
    {"slurmd-debug", 0, Value::kRequired, kSrun},
    {"sockets-per-node", 0, Value::kRequired, kAll},
    {"spread-job", 0, Value::kNone, kAll},
    {"spread-segments", 0, Value::kNone, kAll, "25.11"},
    {"stepmgr", 0, Value::kNone, kAll, "24.05"},
    {"switches", 0, Value::kRequired, kAll},
    {"task-epilog", 0, Value::kRequired, kSrun},
    {"task-prolog", 0, Value::kRequired, kSrun},
    {"tasks-per-node", 0, Value::kRequired, kAll},
    {"test-only", 0, Value::kNone, kSbatch | kSrun},
    {"thread-spec", 0, Value::kRequired, kAll},
    {"threads", 'T', Value::kRequired, kSrun},
    {"threads-per-core", 0, Value::kRequired, kAll},
    {"time", 't', Value::kRequired, kAll},
    {"time-min", 0, Value::kRequired, kAll},
    {"tmp", 0, Value::kRequired, kAll},
    {"treewidth", 0, Value::kRequired, kSrun, "23.11"},
    {"tres-bind", 0, Value::kRequired, kAll, "23.11"},
    {"tres-per-task", 0, Value::kRequired, kAll, "23.02"},
    {"uid", 0, Value::kRequired, kAll},
    {"unbuffered", 'u', Value::kNone, kSrun},
    {"usage", 0, Value::kNone, kAll},
    {"use-min-nodes", 0, Value::kNone, kAll},
    {"verbose", 'v', Value::kNone, kAll},
    {"version", 'V', Value::kNone, kAll},
    {"wait", 'W', Value::kRequired, kSrun},
    {"wait", 'W', Value::kNone, kSbatch},
    {"wait-all-nodes", 0, Value::kRequired, kSbatch | kSalloc},
    {"wait-for-children", 0, Value::kNone, kSrun, "25.05"},
    {"wckey", 0, Value::kRequired, kAll},
    {"whole", 0, Value::kNone, kSrun},
    {"wrap", 0, Value::kRequired, kSbatch},
    {"x11", 0, Value::kOptional, kSrun | kSalloc},
};

// Options of SPANK plugins that are documented by their sites: pyxis, shifter (NERSC), uenv and environment (CSCS),
// EAR, mpibind (LLNL), and some that many sites have.
constexpr std::string_view kPluginOptions =
    "auks clearenv container-entrypoint container-entrypoint-log container-mount-home container-readonly "
    "container-remap-root container-writable disable-dcgm ear ear-verbose gpu-cmode gpu_cmode gpumpi hugepages "
    "mpibind no-container-entrypoint no-container-mount-home no-container-remap-root perf";
/// More of them, whose value may be the next word.
constexpr std::string_view kPluginValues =
    "container-env container-image container-mounts container-name container-save container-workdir ear-policy "
    "environment gpu-srange image module repo tmpfs uenv view volume";

const OptionSpec* find_short(Program program, char letter) {
  for (const auto& option : kOptions) {
    if (option.short_name == letter && (option.programs & program) != 0) return &option;
  }
  return nullptr;
}

std::string nearest_name(Program program, std::string_view name) {
  std::string best;
  size_t distance = name.size() < 5 ? 1 : 2;
  for (const auto& option : kOptions) {
    if ((option.programs & program) == 0) continue;
    const auto d = edit_distance(name, option.name);
    if (d <= distance && d > 0) {
      if (d == distance && !best.empty()) continue;
      best = option.name;
      distance = d;
    }
  }
  return best;
}

std::string underscores_as_dashes(std::string_view name) {
  std::string result(name);
  std::ranges::replace(result, '_', '-');
  return result;
}

class Parser {
 public:
  Parser(Program program, const std::vector<OptionWord>& words) : program_(program), words_(words) {}

  ParsedOptions parse() {
    while (at_ < words_.size()) {
      const auto& word = words_[at_];
      if (!word.is_known() && (word.text.empty() || word.text[0] == '$')) {
        result_.has_unknown = true;
        if (word.text.find("[@]") == word.text.npos && word.text.find("[*]") == word.text.npos) break;
        ++at_;
        continue;
      }
      if (word.text == "--") {
        ++at_;
        break;
      }
      if (word.text.size() < 2 || word.text[0] != '-') break;
      ++at_;
      if (word.text[1] == '-') {
        parse_long(word);
      } else {
        parse_short(word);
      }
    }
    result_.num_used = at_;
    return std::move(result_);
  }

 private:
  void problem(OptionProblemKind kind, const OptionWord& word, std::string written, std::string hint = {}) {
    result_.problems.push_back({kind, word.line, std::move(written), std::move(hint)});
  }

  void add(const OptionSpec& spec, const OptionWord& word, std::string written, std::optional<std::string> value,
           bool is_known) {
    if (!value && spec.value == Value::kRequired) {
      if (at_ >= words_.size()) return problem(OptionProblemKind::kMissingValue, word, written);
      const auto& next = words_[at_];
      // getopt would take the next option as the value.
      const bool is_option =
          next.text.size() > 1 && next.text[0] == '-' && std::isdigit(static_cast<unsigned char>(next.text[1])) == 0;
      if (next.is_known() && is_option && next.line != word.line) {
        return problem(OptionProblemKind::kMissingValue, word, written, next.text);
      }
      value = next.text;
      is_known = next.is_known();
      ++at_;
    }
    if (value && spec.value == Value::kNone) return problem(OptionProblemKind::kUnwantedValue, word, written);
    const bool has_value = value.has_value();
    result_.given.push_back({&spec, value.value_or(std::string()), word.line, has_value, is_known, std::move(written)});
  }

  void parse_long(const OptionWord& word) {
    const auto equals = word.text.find('=');
    const auto full = word.text.substr(2, equals == word.text.npos ? word.text.npos : equals - 2);
    std::optional<std::string> value;
    if (equals != word.text.npos) value = word.text.substr(equals + 1);
    if (full.find('$') != full.npos) {
      result_.has_unknown = true;
      return;
    }
    // srun has --cpu_bind as a hidden name of --cpu-bind.
    const auto typed = full == "cpu_bind" ? underscores_as_dashes(full) : full;
    const auto* spec = find_option(program_, typed);
    if (spec == nullptr) {
      std::vector<const OptionSpec*> fitting;
      for (const auto& option : kOptions) {
        if ((option.programs & program_) != 0 && std::string_view(option.name).starts_with(typed)) {
          fitting.push_back(&option);
        }
      }
      if (fitting.size() == 1 && !is_plugin_option(typed)) spec = fitting[0];
      if (fitting.size() > 1 && !is_plugin_option(typed)) {
        std::string names;
        for (const auto* option : fitting) names += fmt::format("{}--{}", names.empty() ? "" : ", ", option->name);
        return problem(OptionProblemKind::kAmbiguous, word, "--" + full, names);
      }
    }
    if (spec == nullptr) {
      if (is_plugin_option(typed)) {
        const bool takes_next = !value && has_word(kPluginValues, typed);
        if (takes_next && at_ < words_.size() && !words_[at_].text.starts_with("-")) ++at_;
        return;
      }
      for (const auto other : {kSbatch, kSrun, kSalloc}) {
        if (other != program_ && find_option(other, typed) != nullptr) {
          return problem(OptionProblemKind::kOtherProgram, word, "--" + full, std::string(name(other)));
        }
      }
      const auto dashed = underscores_as_dashes(typed);
      return problem(
          OptionProblemKind::kUnknown, word, "--" + full,
          dashed != typed && find_option(program_, dashed) != nullptr ? dashed : nearest_name(program_, typed));
    }
    add(*spec, word, "--" + full, std::move(value), word.is_known());
  }

  void parse_short(const OptionWord& word) {
    for (size_t i = 1; i < word.text.size(); ++i) {
      const auto letter = word.text[i];
      const auto written = std::string("-") + letter;
      const auto* spec = find_short(program_, letter);
      if (spec == nullptr) {
        // "-nodes=2" is read as -n "odes=2"; a word of letters is a long option with one dash.
        for (const auto other : {kSbatch, kSrun}) {
          if (other != program_ && find_short(other, letter) != nullptr) {
            return problem(OptionProblemKind::kOtherProgram, word, written, std::string(name(other)));
          }
        }
        const auto whole =
            word.text.substr(1, word.text.find('=') == word.text.npos ? word.text.npos : word.text.find('=') - 1);
        return problem(OptionProblemKind::kUnknown, word, i == 1 && whole.size() > 2 ? "-" + whole : written,
                       find_option(program_, whole) != nullptr ? whole : "");
      }
      if (spec->value == Value::kNone) {
        result_.given.push_back({spec, "", word.line, false, true, written});
        continue;
      }
      std::optional<std::string> value;
      if (i + 1 < word.text.size()) value = word.text.substr(i + 1);
      if (!value && spec->value == Value::kOptional) {
        result_.given.push_back({spec, "", word.line, false, true, written});
        return;
      }
      return add(*spec, word, written, std::move(value), word.is_known());
    }
  }

  Program program_;
  const std::vector<OptionWord>& words_;
  size_t at_ = 0;
  ParsedOptions result_;
};

}  // namespace

std::string_view name(Program program) { return program == kSrun ? "srun" : program == kSalloc ? "salloc" : "sbatch"; }

bool OptionWord::is_literal(size_t at) const {
  const auto next = std::ranges::upper_bound(expansions, at, {}, &Part::begin);
  return next == expansions.begin() || std::prev(next)->end <= at;
}

void OptionWord::drop_front(size_t num_characters) {
  text.erase(0, num_characters);
  std::erase_if(expansions, [&](const Part& part) { return part.end <= num_characters; });
  for (auto& part : expansions)
    part = {std::max(part.begin, num_characters) - num_characters, part.end - num_characters};
}

size_t edit_distance(std::string_view a, std::string_view b) {
  if (a.size() > 64 || b.size() > 64) return 64;
  std::array<std::array<size_t, 66>, 66> d{};
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

const OptionSpec* find_option(Program program, std::string_view wanted) {
  for (const auto& option : kOptions) {
    if ((option.programs & program) != 0 && wanted == option.name) return &option;
  }
  return nullptr;
}

bool is_plugin_option(std::string_view wanted) {
  return has_word(kPluginOptions, wanted) || has_word(kPluginValues, wanted) || wanted.starts_with("ear-");
}

bool has_word(std::string_view list, std::string_view word) {
  const auto words = words_of(list);
  return std::ranges::find(words, word) != words.end();
}

bool has_option(const OptionSpec& spec, const Version& version) {
  const auto release = Version{version.year, version.month, 0};
  if (*spec.since != 0 && release < parse_version(spec.since).value_or(Version{})) return false;
  return *spec.until == 0 || release <= parse_version(spec.until).value_or(Version{});
}

ParsedOptions parse_options(Program program, const std::vector<OptionWord>& words) {
  return Parser(program, words).parse();
}

}  // namespace yoke::slurm::check
