// `yoke visible`: which devices a program started here would see, and why; or a program that sees chosen ones.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cerrno>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/process.h"
#include "yoke/base/text.h"
#include "yoke/cli/command.h"
#include "yoke/cli/device_options.h"
#include "yoke/cli/device_views.h"
#include "yoke/device/visibility/set.h"
#include "yoke/device/visibility/visibility.h"

namespace yoke::cli {
namespace {

using Json = nlohmann::ordered_json;

struct VisibleArgs {
  DeviceOptions device;
  bool json = false;
  bool exports = false;
  std::vector<std::string> chosen;  ///< Of --set.
  CLI::Option* format_option = nullptr;
  std::string format = "uuid";

  bool is_set() const { return !chosen.empty(); }
  std::string selection() const { return fmt::format("{}", fmt::join(chosen, ",")); }
};

// ---- the explanation ------------------------------------------------------------------------------------------------

struct Row {
  const device::DeviceVisibility& visibility;
  const device::Device& device;  ///< The GPU, or the MIG instance of it.
  const device::Device& gpu;

  Row(const device::DeviceVisibility& row, const device::Snapshot& snapshot)
      : visibility(row), device(find(row, snapshot, true)), gpu(find(row, snapshot, false)) {}

  std::string id() const {
    return visibility.instance ? fmt::format("{}:{}", gpu.index, device.index) : fmt::format("{}", gpu.index);
  }
  const std::string& name() const { return device.facts.name.empty() ? gpu.facts.name : device.facts.name; }

 private:
  static const device::Device& find(const device::DeviceVisibility& row, const device::Snapshot& snapshot,
                                    bool with_instance) {
    const auto gpu = std::find_if(snapshot.devices.begin(), snapshot.devices.end(),
                                  [&](const device::Device& other) { return other.index == row.index; });
    return with_instance && row.instance ? gpu->instances[static_cast<size_t>(*row.instance)] : *gpu;
  }
};

std::string id_of_entry(const device::Entry& entry, const device::Snapshot& snapshot) {
  if (!entry.unit) return "";
  device::DeviceVisibility place;
  place.index = entry.unit->device;
  place.instance = entry.unit->instance;
  return Row(place, snapshot).id();
}

/// `text` as JSON's strings must be; a variable may hold any bytes.
std::string valid(const std::string& text) {
  const auto dumped = Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  return Json::parse(dumped).get<std::string>();
}

Json or_null(const std::string& text) { return text.empty() ? Json() : Json(valid(text)); }
Json or_null(const std::optional<int64_t>& number) { return number ? Json(*number) : Json(); }

Json to_json(const device::Entry& entry, const device::Snapshot& snapshot) {
  return {{"text", valid(entry.text)},
          {"verdict", name(entry.verdict)},
          {"device", or_null(id_of_entry(entry, snapshot))},
          {"why", entry.why},
          {"certain", entry.is_certain}};
}

Json to_json(const device::Visibility& visibility, const device::Snapshot& snapshot) {
  auto devices = Json::array();
  for (const auto& item : visibility.devices) {
    const Row row(item, snapshot);
    devices.push_back({{"index", item.index},
                       {"instance", item.instance ? Json(row.device.index) : Json()},
                       {"visible", item.ordinal.has_value()},
                       {"ordinal", or_null(item.ordinal)},
                       {"certain", item.is_certain},
                       {"vendor", name(item.vendor)},
                       {"name", or_null(row.name())},
                       {"uuid", or_null(row.device.facts.uuid)},
                       {"pci_bus_id", or_null(row.gpu.facts.pci_bus_id)},
                       {"reason", or_null(item.reason)}});
  }
  auto variables = Json::array();
  for (const auto& variable : visibility.variables) {
    auto entries = Json::array();
    for (const auto& entry : variable.entries) entries.push_back(to_json(entry, snapshot));
    variables.push_back({{"name", variable.name},
                         {"value", valid(variable.value)},
                         {"has_effect", variable.has_effect},
                         {"effect", variable.effect},
                         {"entries", entries}});
  }
  return {{"devices", devices}, {"variables", variables}, {"warnings", visibility.warnings}};
}

Table entries_table(const device::Variable& variable, const device::Snapshot& snapshot) {
  constexpr int64_t kWidth = 30;
  Table table{{{"  ENTRY"}, {"VERDICT"}, {"DEVICE"}, {"WHY"}}, {}};
  for (const auto& entry : variable.entries) {
    table.rows.push_back({"  \"" + fit(printable(entry.text), kWidth) + "\"", std::string(name(entry.verdict)),
                          id_of_entry(entry, snapshot), entry.why + (entry.is_certain ? "" : " (not certain)")});
  }
  return table;
}

Table devices_table(const device::Visibility& visibility, const device::Snapshot& snapshot, device::Vendor vendor) {
  Table table{{{"  NUMBER"}, {"DEVICE"}, {"NAME"}, {"UUID, OR WHY IT IS HIDDEN"}}, {}};
  for (const auto& item : visibility.devices) {
    if (item.vendor != vendor) continue;
    const Row row(item, snapshot);
    const auto number = item.ordinal ? fmt::format("{}", *item.ordinal) : "hidden";
    table.rows.push_back({fmt::format("  {}{}", number, item.is_certain ? "" : "?"), row.id(), row.name(),
                          item.ordinal ? row.device.facts.uuid : item.reason});
  }
  return table;
}

/// A driver that has not told which devices it has; null: all have.
const device::BackendReport* find_silent(const device::Snapshot& snapshot) {
  const auto found = std::find_if(snapshot.backends.begin(), snapshot.backends.end(),
                                  [](const device::BackendReport& report) { return !report.has_answered; });
  return found == snapshot.backends.end() ? nullptr : &*found;
}

std::string to_text(const device::Visibility& visibility, const device::Snapshot& snapshot) {
  std::string text;
  for (const auto& variable : visibility.variables) {
    constexpr int64_t kWidth = 60;
    text += fmt::format("{}=\"{}\": {}\n", variable.name, fit(printable(variable.value), kWidth), variable.effect);
    if (!variable.entries.empty()) text += to_text(entries_table(variable, snapshot), kUnlimitedWidth);
  }
  text += text.empty() ? "No variable hides devices.\n\n" : "\n";
  bool is_any = false;
  for (const auto vendor : {device::Vendor::kNvidia, device::Vendor::kAmd}) {
    const auto table = devices_table(visibility, snapshot, vendor);
    if (table.rows.empty()) continue;
    is_any = true;
    const auto num_visible = std::count_if(visibility.devices.begin(), visibility.devices.end(),
                                           [&](const auto& item) { return item.vendor == vendor && item.ordinal; });
    text += fmt::format("{} programs see {} of {}:\n", vendor == device::Vendor::kNvidia ? "CUDA" : "HIP", num_visible,
                        table.rows.size());
    text += to_text(table, kUnlimitedWidth);
  }
  if (const auto* silent = find_silent(snapshot)) {
    text += fmt::format("It is not known which GPUs there are: {}.\n", silent->reason);
  } else if (!is_any) {
    text += "Programs see no GPU: there is none here.\n";
  }
  const bool is_certain = std::all_of(visibility.devices.begin(), visibility.devices.end(),
                                      [](const device::DeviceVisibility& item) { return item.is_certain; });
  if (!is_certain) {
    text += "\n?: CUDA's order is not certain here; set CUDA_DEVICE_ORDER=PCI_BUS_ID, or use --set.\n";
  }
  for (const auto& line : visibility.warnings) text += "\nwarning: " + line + '\n';
  return text;
}

// ---- another environment --------------------------------------------------------------------------------------------

std::string shell_quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? "'\\''" : std::string(1, c);
  return result + "'";
}

std::string to_shell(const std::vector<device::Assignment>& assignments) {
  std::string text;
  for (const auto& [name, value] : assignments) {
    text += value ? fmt::format("export {}={}\n", name, shell_quoted(*value)) : fmt::format("unset {}\n", name);
  }
  return text;
}

/// Text that a child leaves for its parent, whatever its length, and without either waiting for the other.
class Note {
 public:
  Note() : file_(memfd_create("yoke-visible", MFD_CLOEXEC)) {
    if (!file_) throw system_error(errno, "making a file in memory");
  }
  void write(const std::string& text) { write_all(file_.value(), std::as_bytes(std::span(text)), "a file in memory"); }
  std::string read() const { return text_of(file_); }

 private:
  UniqueFd file_;
};

/// Becomes the program, with `variables` ("NAME=value", each ended by a NUL). Returns only if that fails.
int exec_program(const std::vector<std::string>& words, std::string_view variables) {
  const auto parts = split_terminated(variables, '\0');
  const std::vector<std::string> environment(parts.begin(), parts.end());
  execvpe(words[0].c_str(), exec_pointers(words).data(), exec_pointers(environment).data());
  const int error = errno;
  std::cerr << "yoke visible: " << system_error(error, "cannot start " + words[0]).what() << std::endl;
  constexpr int kNotFound = 127;  // as shells and `yoke run` say
  constexpr int kCannotRun = 126;
  return error == ENOENT ? kNotFound : kCannotRun;
}

// ---- the command ----------------------------------------------------------------------------------------------------

constexpr device::Want kFactsOnly{.processes = false};

int explain(const VisibleArgs& args, Context& context) {
  return with_source(args.device, context, [&](device::Source& source) {
    const auto snapshot = source.sample(kFactsOnly);
    auto environment = context.environment;
    if (args.is_set()) {
      const auto format = args.format == "index" ? device::IdFormat::kIndex : device::IdFormat::kUuid;
      assign(assignments_for(args.selection(), format, environment, snapshot), environment);
    }
    const auto visibility = device::visibility(environment, snapshot);
    context.out << (args.json ? to_json(visibility, snapshot).dump(2) + '\n' : to_text(visibility, snapshot));
    context.out.flush();
    for (const auto& line : device_notes(snapshot)) std::cerr << "yoke visible: " << line << '\n';
    return find_silent(snapshot) == nullptr ? kExitOk : exit_status(ErrorCode::kUnavailable);
  });
}

/// The variables are found by a child (with_source); this process stays clean for the program.
int set(const VisibleArgs& args, Context& context) {
  Note note;
  const int status = with_source(args.device, context, [&](device::Source& source) {
    const auto format = args.format == "index" ? device::IdFormat::kIndex : device::IdFormat::kUuid;
    const auto assignments = assignments_for(args.selection(), format, context.environment, source.sample(kFactsOnly));
    if (args.exports) context.out << to_shell(assignments);
    auto environment = context.environment;
    assign(assignments, environment);
    std::string text;
    for (const auto& variable : environment.to_strings()) text += variable + '\0';
    note.write(text);
    return kExitOk;
  });
  return status != kExitOk || args.exports ? status : exec_program(context.rest, note.read());
}

int run_visible(const VisibleArgs& args, Context& context) {
  const bool has_program = !context.rest.empty();
  const auto refuse = [](const char* why) { return Error(ErrorCode::kInvalidArgument, "{}", why); };
  if (!args.is_set()) {
    if (has_program)
      throw refuse("which devices shall the program see? For example `yoke visible --set 0,2 -- ./train`");
    if (args.exports) throw refuse("--export writes what --set chooses; for example `yoke visible --set 0,2 --export`");
  }
  if (!args.is_set() && args.format_option->count() > 0) throw refuse("--format is for the devices of --set");
  if (args.exports && has_program) throw refuse("choose one of --export and a program");
  if (args.json && (args.exports || has_program))
    throw refuse("--json explains, and neither exports nor starts anything");
  return args.exports || has_program ? set(args, context) : explain(args, context);
}

}  // namespace

void add_visible(CLI::App& app, Context& context) {
  auto args = std::make_shared<VisibleArgs>();  // CLI11 binds by reference; the callback keeps it alive
  auto program = std::make_shared<std::vector<std::string>>();
  auto* cmd = app.add_subcommand("visible", "Explain which GPUs programs see, or start one that sees some");
  add_device_choice(*cmd, args->chosen, "--set",
                    "Devices to show: ids as in `yoke devices` (0, 0-3, 1:0 for MIG, UUIDs), all, or none; alone: "
                    "explain what a program would see then",
                    ChoiceForm::kOneWord);
  args->format_option =
      cmd->add_option("--format", args->format, "Name them by UUID, or by number for programs that read only those")
          ->type_name("uuid|index")
          ->capture_default_str();
  cmd->add_flag("--export", args->exports, "Print the variables for a shell's eval instead of starting a program");
  cmd->add_flag("--json", args->json, "Print JSON");
  add_device_options(*cmd, args->device);
  cmd->add_option("PROGRAM", *program,
                  "With --set: what to start, with its arguments; every word from here on is its own")
      ->type_name(kProgramArguments)
      ->expected(0, -1);
  cmd->footer(
      examples("  yoke visible                                 what programs started here see, and why\n"
               "  CUDA_VISIBLE_DEVICES=0,9,1 yoke visible      try a value\n"
               "  yoke visible --set 2,0 -- python train.py    a program with devices 2 and 0, in this order\n"
               "  eval \"$(yoke visible --set 1 --export)\"      the same for everything that follows in this shell\n"
               "\n"
               "Exit status: 0, or the program's; 127 if it is not found, 66 if a device is not,\n"
               "75 if a driver does not tell which devices there are."));
  cmd->callback([args, program, &context] { context.exit_code = run_visible(*args, context); });
}

}  // namespace yoke::cli
