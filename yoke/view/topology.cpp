#include "yoke/view/topology.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "yoke/base/format.h"
#include "yoke/base/json.h"
#include "yoke/base/table.h"

namespace yoke::view {
namespace {

using device::Connection;
using device::Endpoint;
using device::LinkMatrix;
using device::Topology;

struct MatrixColumn {
  std::string title;
  std::vector<std::string> cells;  ///< One cell for each endpoint.

  int64_t width() const {
    int64_t most = display_width(title);
    for (const auto& cell : cells) most = std::max(most, display_width(cell));
    return most;
  }
};

std::vector<MatrixColumn> columns_of(const LinkMatrix& matrix) {
  const auto& endpoints = matrix.endpoints;
  std::vector<MatrixColumn> columns;
  for (size_t i = 0; i < endpoints.size(); ++i) {
    auto& column = columns.emplace_back(MatrixColumn{endpoints[i].label, {}});
    for (const auto& row : matrix.connections) column.cells.push_back(label(row[i]));
  }
  MatrixColumn nodes{"NUMA", {}}, cpus{"CPUs beside it", {}};
  for (const auto& endpoint : endpoints) {
    nodes.cells.push_back(endpoint.numa_node ? fmt::format("{}", *endpoint.numa_node) : "-");
    cpus.cells.push_back(endpoint.cpus.empty() ? "-" : endpoint.cpus);
  }
  columns.push_back(std::move(nodes));
  columns.push_back(std::move(cpus));
  return columns;
}

/// Returns a table of the labels and the columns from `first` on, as many as fit into `width`, but at least one. Moves
/// `first` behind the last of these columns.
std::string block(const LinkMatrix& matrix, const std::vector<MatrixColumn>& columns, size_t& first, int64_t width) {
  Table table;
  table.columns.push_back({""});
  int64_t used = 0;
  for (const auto& endpoint : matrix.endpoints) {
    table.rows.push_back({endpoint.label});
    used = std::max(used, display_width(endpoint.label));
  }
  const auto begin = first;
  for (; first < columns.size(); ++first) {
    used += 2 + columns[first].width();
    if (used > width && first > begin) break;
    table.columns.push_back({columns[first].title});
    for (size_t row = 0; row < table.rows.size(); ++row) table.rows[row].push_back(columns[first].cells[row]);
  }
  return to_text(table, kUnlimitedWidth);
}

std::string legend(const LinkMatrix& matrix) {
  using Kind = Connection::Kind;
  constexpr std::array<std::pair<Kind, const char*>, 9> kMeanings = {{
      {Kind::kNvlink, "NV#    # NVLinks, directly or by NVSwitches"},
      {Kind::kXgmi, "XGMI#  # links of Infinity Fabric"},
      {Kind::kHops, "HOP#   Infinity Fabric through other GPUs: # links one after the other"},
      {Kind::kPix, "PIX    at most one PCIe switch"},
      {Kind::kPxb, "PXB    several PCIe switches, not the host bridge"},
      {Kind::kPhb, "PHB    the same PCIe host bridge"},
      {Kind::kNode, "NODE   several host bridges of one NUMA node"},
      {Kind::kSys, "SYS    the links between NUMA nodes"},
      {Kind::kUnknown, "?      not known"},
  }};
  std::string text;
  for (const auto& [kind, meaning] : kMeanings) {
    const bool is_used = std::ranges::any_of(matrix.connections, [&, wanted = kind](const auto& row) {
      return std::ranges::any_of(row, [&](const Connection& connection) { return connection.kind == wanted; });
    });
    if (is_used) text += fmt::format("  {}\n", meaning);
  }
  return text;
}

std::vector<std::string> labels_beside(const LinkMatrix& matrix, int64_t numa_node) {
  std::vector<std::string> labels;
  for (const auto& endpoint : matrix.endpoints) {
    if (endpoint.numa_node == numa_node) labels.push_back(endpoint.label);
  }
  return labels;
}

std::string_view name(Endpoint::Kind kind) {
  return kind == Endpoint::Kind::kDevice ? "device" : kind == Endpoint::Kind::kSilent ? "pci" : "nic";
}

}  // namespace

std::string machine_line(const Topology& topology) {
  if (topology.num_cpus == 0) return {};
  const auto& packages = topology.packages;
  const auto model = packages.empty() || packages.front().name.empty() ? "Machine" : printable(packages.front().name);
  auto text = fmt::format("{}: {}, {}, {}, {}", model, counted(std::ssize(packages), "package"),
                          counted(std::ssize(topology.numa_nodes), "NUMA node"), counted(topology.num_cores, "core"),
                          counted(topology.num_cpus, "CPU"));
  if (!topology.caches.empty()) {
    const auto& cache = topology.caches.front();
    text += fmt::format(", L{} {} x {}", cache.level, cache.count, format_bytes(cache.size_bytes));
  }
  return text;
}

std::string topology_text(const Topology& topology, const LinkMatrix& matrix, int64_t width) {
  std::string text;
  if (const auto line = machine_line(topology); !line.empty()) {
    text += line + '\n';
    if (!topology.allowed_cpus.empty() && topology.allowed_cpus != topology.cpus) {
      text += fmt::format("This process may use CPUs {}\n", printable(topology.allowed_cpus));
    }
    text += '\n';
  }
  if (!matrix.endpoints.empty()) {
    const auto columns = columns_of(matrix);
    for (size_t first = 0; first < columns.size();) text += block(matrix, columns, first, width) + '\n';
    if (const auto words = legend(matrix); !words.empty()) text += words + '\n';
    for (const auto& endpoint : matrix.endpoints) {
      text += fmt::format("  {:<6} {}  {}{}\n", endpoint.label,
                          endpoint.pci_bus_id.empty() ? "-" : printable(endpoint.pci_bus_id),
                          endpoint.name.empty() ? "-" : printable(endpoint.name),
                          endpoint.kind == Endpoint::Kind::kSilent ? ", of which no driver told" : "");
    }
  }
  if (topology.numa_nodes.empty()) return text;
  Table nodes{.columns = {{"NUMA"}, {"memory", Align::kRight}, {"CPUs"}, {"beside it"}}};
  for (const auto& node : topology.numa_nodes) {
    nodes.rows.push_back({fmt::format("{}", node.number), format_bytes(node.memory_bytes), node.cpus,
                          fmt::format("{}", fmt::join(labels_beside(matrix, node.number), " "))});
  }
  return text + (matrix.endpoints.empty() ? "" : "\n") + to_text(nodes, kUnlimitedWidth);
}

Json topology_json(const Topology& topology, const LinkMatrix& matrix) {
  Json json;
  json["packages"] = json_list(topology.packages, [](const auto& package) -> Json {
    return {{"number", package.number}, {"name", or_null(printable(package.name))}, {"cpus", package.cpus}};
  });
  json["numa_nodes"] = json_list(topology.numa_nodes, [&](const auto& node) -> Json {
    return {{"number", node.number},
            {"package", or_null(node.package)},
            {"memory_bytes", node.memory_bytes},
            {"cpus", node.cpus},
            {"beside", labels_beside(matrix, node.number)}};
  });
  json["caches"] = json_list(topology.caches, [](const auto& cache) -> Json {
    return {{"level", cache.level}, {"count", cache.count}, {"size_bytes", cache.size_bytes}};
  });
  json["num_cores"] = topology.num_cores;
  json["num_cpus"] = topology.num_cpus;
  json["cpus"] = or_null(printable(topology.cpus));
  json["allowed_cpus"] = or_null(printable(topology.allowed_cpus));
  json["endpoints"] = json_list(matrix.endpoints, [](const auto& endpoint) -> Json {
    return {{"label", endpoint.label},
            {"kind", name(endpoint.kind)},
            {"name", or_null(printable(endpoint.name))},
            {"pci_bus_id", or_null(printable(endpoint.pci_bus_id))},
            {"numa_node", or_null(endpoint.numa_node)},
            {"cpu_affinity", or_null(printable(endpoint.cpus))}};
  });
  json["connections"] = Json::array();
  for (size_t a = 0; a < matrix.endpoints.size(); ++a) {
    for (size_t b = a + 1; b < matrix.endpoints.size(); ++b) {
      const auto& connection = matrix.connections[a][b];
      const bool is_known = connection.kind != Connection::Kind::kUnknown;
      json["connections"].push_back({{"from", matrix.endpoints[a].label},
                                     {"to", matrix.endpoints[b].label},
                                     {"kind", is_known ? Json(device::name(connection.kind)) : Json(nullptr)},
                                     {"count", connection.count > 0 ? Json(connection.count) : Json(nullptr)}});
    }
  }
  return json;
}

}  // namespace yoke::view
