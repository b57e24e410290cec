#include "yoke/device/selection.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/device/bus_id.h"

namespace yoke::device {
namespace {

/// A bus id as users type it: with its function, so that "10:00" is none.
std::optional<std::string> parse_typed_bus_id(std::string_view text) {
  return text.find('.') == text.npos ? std::nullopt : parse_bus_id(text);
}

std::optional<int64_t> parse_index(std::string_view text) {
  const bool is_number = !text.empty() && text.find_first_not_of("0123456789") == text.npos;
  return is_number ? parse_int(text) : std::nullopt;
}

/// Parses "3" or "0-3".
bool parse_indices(std::string_view text, int64_t& first, int64_t& last) {
  const auto dash = text.find('-');
  const auto from = parse_index(text.substr(0, dash));
  const auto to = dash == text.npos ? from : parse_index(text.substr(dash + 1));
  if (!from || !to || *to < *from) return false;
  first = *from;
  last = *to;
  return true;
}

/// Whether the report is from a GPU driver's backend.
bool is_of_gpus(const BackendReport& report) { return report.backend != "cpu"; }

}  // namespace

std::string Choice::id() const { return parent != nullptr ? id_of(*parent, *device) : id_of(*device); }

DeviceSelection::Term DeviceSelection::parse_word(const std::string& word) {
  using Kind = Term::Kind;
  Term term{.word = word};
  const auto colon = word.find(':');
  const auto head = std::string_view(word).substr(0, colon);
  const auto tail = colon == word.npos ? std::string_view() : std::string_view(word).substr(colon + 1);
  if (word == "all" || word == "cpu" || word == "mig") {
    term.kind = word == "all" ? Kind::kAll : word == "cpu" ? Kind::kCpu : Kind::kMig;
  } else if (word.size() > 4 && (word.starts_with("GPU-") || word.starts_with("MIG-"))) {
    term.kind = Kind::kUuid;
    term.text = word;
  } else if (auto bus_id = parse_typed_bus_id(word)) {
    term.kind = Kind::kBusId;
    term.text = *std::move(bus_id);
  } else if ((head == name(Vendor::kNvidia) || head == name(Vendor::kAmd)) &&
             parse_indices(tail, term.first, term.last)) {
    term.kind = Kind::kIndex;
    term.vendor = head == name(Vendor::kAmd) ? Vendor::kAmd : Vendor::kNvidia;
  } else if (const auto gpu = parse_index(head), instance = parse_index(tail); gpu && instance) {
    term.kind = Kind::kInstance;
    term.first = term.last = *gpu;
    term.instance = *instance;
  } else if (parse_indices(word, term.first, term.last)) {
    term.kind = Kind::kIndex;
  } else {
    throw Error(ErrorCode::kInvalidArgument,
                "device `{}`: write an index (0), a range (0-3), 0:1 for a MIG instance, a UUID or its beginning "
                "(GPU-4f1a), a PCI bus id (c1:00.0), amd:0, mig, cpu or all; `yoke devices -L` lists them",
                printable(word));
  }
  return term;
}

DeviceSelection DeviceSelection::parse(const std::vector<std::string>& words) {
  DeviceSelection selection;
  for (const std::string_view list : words) {
    auto parts = split(list, ',');
    if (parts.empty()) parts.push_back(list);
    for (const auto part : parts) {
      std::string word(part);
      std::erase(word, ' ');
      if (word.empty()) {
        throw Error(ErrorCode::kInvalidArgument, "devices `{}` have an empty entry; write ids like 0,2",
                    printable(list));
      }
      selection.terms_.push_back(parse_word(word));
    }
  }
  return selection;
}

bool DeviceSelection::may_name(const Term& term, Vendor vendor) {
  switch (term.kind) {
    case Term::Kind::kAll: return true;
    case Term::Kind::kCpu: return vendor == Vendor::kCpu;
    case Term::Kind::kMig:
    case Term::Kind::kInstance: return vendor == Vendor::kNvidia;
    case Term::Kind::kIndex: return term.vendor ? vendor == *term.vendor : vendor != Vendor::kCpu;
    case Term::Kind::kUuid: return term.text.starts_with("MIG-") ? vendor == Vendor::kNvidia : vendor != Vendor::kCpu;
    case Term::Kind::kBusId: return vendor != Vendor::kCpu;
  }
  return true;
}

bool DeviceSelection::may_name(Vendor vendor) const {
  return is_everything() || std::ranges::any_of(terms_, [&](const Term& term) { return may_name(term, vendor); });
}

bool DeviceSelection::may_name(const DevicePlace& place) const {
  return is_everything() || std::ranges::any_of(terms_, [&](const Term& term) {
           if (!may_name(term, place.vendor)) return false;
           if (term.kind != Term::Kind::kIndex && term.kind != Term::Kind::kInstance) return true;
           const auto index = term.vendor ? place.number : place.index;
           return term.first <= index && index <= term.last;
         });
}

/// Finds the devices in one snapshot that terms name.
class DeviceSelection::Resolver {
 public:
  explicit Resolver(const Snapshot& snapshot) : snapshot_(snapshot) {}

  std::vector<Choice> named_by(const Term& term) const {
    using Kind = Term::Kind;
    std::vector<Choice> found;
    if (term.kind == Kind::kIndex) {
      refuse_uncertain_index(term);
      for (auto index = term.first; index <= term.last; ++index) {
        const auto* device = at(index, term.vendor);
        if (device == nullptr) throw missing(term, missing_word(term, index));
        found.push_back({device, nullptr, term.word});
      }
      return found;
    }
    if (term.kind == Kind::kInstance) refuse_uncertain_index(term);
    std::vector<Choice> by_beginning;
    for (const auto& device : snapshot_.devices) {
      const auto visit = [&](const Device& one, const Device* parent) {
        const Choice choice{&one, parent, term.word};
        if (is_named(term, one, parent)) found.push_back(choice);
        if (term.kind == Kind::kUuid && one.facts.uuid.starts_with(term.text)) by_beginning.push_back(choice);
      };
      visit(device, nullptr);
      for (const auto& instance : device.instances) visit(instance, &device);
    }
    if (found.empty()) found = std::move(by_beginning);
    const bool is_of_one = term.kind == Kind::kUuid || term.kind == Kind::kBusId;
    if (is_of_one && found.size() > 1) {
      std::vector<std::string> ids;
      for (const auto& choice : found) ids.push_back(choice.id());
      throw Error(ErrorCode::kInvalidArgument, "device `{}`: {} devices have a {} ({}); {}", term.word, found.size(),
                  term.kind == Kind::kUuid ? "UUID with this beginning" : "PCI bus id like this", fmt::join(ids, ", "),
                  term.kind == Kind::kUuid ? "give more of it, or name one of these" : "name one of these");
    }
    if (found.empty()) throw missing(term, fmt::format("`{}`", term.word));
    return found;
  }

 private:
  static bool is_named(const Term& term, const Device& device, const Device* parent) {
    switch (term.kind) {
      case Term::Kind::kAll: return parent == nullptr;
      case Term::Kind::kCpu: return parent == nullptr && device.vendor == Vendor::kCpu;
      case Term::Kind::kMig: return parent != nullptr;
      case Term::Kind::kInstance:
        return parent != nullptr && parent->index == term.first && device.index == term.instance;
      case Term::Kind::kUuid: return device.facts.uuid == term.text;
      case Term::Kind::kBusId: return parent == nullptr && device.facts.pci_bus_id == term.text;
      case Term::Kind::kIndex: break;
    }
    return false;
  }

  static std::string missing_word(const Term& term, int64_t index) {
    const auto word = fmt::format("{}{}", term.vendor ? fmt::format("{}:", name(*term.vendor)) : "", index);
    return word == term.word ? fmt::format("`{}`", word) : fmt::format("`{}` (of `{}`)", word, term.word);
  }

  /// Returns the index of a vendor's first device. Devices that were not read are counted too.
  int64_t first_index(Vendor vendor) const {
    std::optional<int64_t> first;
    const auto add = [&](Vendor other, int64_t index) {
      if (other == vendor && (!first || index < *first)) first = index;
    };
    for (const auto& device : snapshot_.devices) add(device.vendor, device.index);
    for (const auto& place : snapshot_.unasked) add(place.vendor, place.index);
    return first.value_or(0);
  }

  const Device* at(int64_t index, std::optional<Vendor> vendor) const {
    if (vendor) index += first_index(*vendor);
    for (const auto& device : snapshot_.devices) {
      if (device.index == index && device.vendor != Vendor::kCpu && (!vendor || device.vendor == *vendor)) {
        return &device;
      }
    }
    return nullptr;
  }

  bool is_silent(std::string_view backend) const {
    return std::ranges::any_of(snapshot_.backends, [&](const BackendReport& report) {
      return report.backend == backend && !report.has_answered && !report.is_broken;
    });
  }

  /// Refuses an index while the number of NVIDIA's GPUs is unknown, because the other indices depend on it.
  void refuse_uncertain_index(const Term& term) const {
    if (term.vendor == Vendor::kAmd || !is_silent("nvml")) return;
    throw Error(ErrorCode::kUnavailable,
                "device `{}`: NVIDIA's driver has not answered, so it is not known which devices have which index; "
                "--deadline waits longer",
                term.word);
  }

  Error missing(const Term& term, const std::string& word) const {
    std::vector<std::string> silent;
    for (const auto& report : snapshot_.backends) {
      if (is_of_gpus(report) && report.is_broken) {
        return {ErrorCode::kFailedPrecondition, "there is no device {} among those that are known: {}", word,
                report.reason};
      }
      if (is_of_gpus(report) && !report.has_answered) silent.push_back(fmt::format("the driver ({})", report.backend));
    }
    const bool is_by_identity = term.kind == Term::Kind::kUuid || term.kind == Term::Kind::kBusId;
    for (const auto& device : snapshot_.devices) {
      const bool is_unknown =
          term.kind == Term::Kind::kInstance ? device.index == term.first : is_by_identity && device.facts.uuid.empty();
      if (device.state == State::kNoAnswer && (is_unknown || term.kind == Term::Kind::kMig)) {
        silent.push_back("device " + id_of(device));
      }
    }
    if (!silent.empty()) {
      return {ErrorCode::kUnavailable,
              "there is no device {} among those that answer, and {} did not answer; "
              "--deadline waits longer",
              word, fmt::join(silent, ", ")};
    }
    if (term.kind == Term::Kind::kMig) {
      return {ErrorCode::kNotFound, "there is no MIG instance here; there are: {}", fmt::join(known_ids(), ", ")};
    }
    return {ErrorCode::kNotFound, "there is no device {} here; there are: {}", word, fmt::join(known_ids(), ", ")};
  }

  std::vector<std::string> known_ids() const {
    std::map<int64_t, std::vector<std::string>> ids;  // sorted by index
    for (const auto& device : snapshot_.devices) {
      auto& own = ids[device.index];
      own.push_back(id_of(device));
      for (const auto& instance : device.instances) own.push_back(id_of(device, instance));
    }
    for (const auto& place : snapshot_.unasked) {
      ids[place.index].push_back(id_of(Device{.index = place.index, .vendor = place.vendor}));
    }
    std::vector<std::string> result;
    for (auto& [index, own] : ids) result.insert(result.end(), own.begin(), own.end());
    return result;
  }

  const Snapshot& snapshot_;
};

std::vector<Choice> DeviceSelection::resolve(const Snapshot& snapshot) const {
  std::vector<Choice> choices;
  if (is_everything()) {
    for (const auto& device : snapshot.devices) choices.push_back({&device, nullptr, id_of(device)});
    return choices;
  }
  const Resolver resolver(snapshot);
  for (const auto& term : terms_) {
    auto named = resolver.named_by(term);
    choices.insert(choices.end(), named.begin(), named.end());
  }
  return choices;
}

const Device& find_device(const Snapshot& snapshot, std::string_view id) {
  const auto choices = DeviceSelection::parse({std::string(id)}).resolve(snapshot);
  if (choices.size() == 1) return *choices[0].device;
  throw Error(ErrorCode::kInvalidArgument, "device `{}`: this names {} devices; name one", id, choices.size());
}

}  // namespace yoke::device
