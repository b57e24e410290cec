// The drawing of `yoke topo --svg`. It shows packages with their NUMA nodes, PCIe bridges and devices below these, and
// the links between GPUs. If there are several packages, half of them are drawn at the bottom, upside down, so that the
// devices of both halves face each other with the links in between.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "yoke/base/format.h"
#include "yoke/base/text.h"
#include "yoke/view/svg.h"
#include "yoke/view/topology.h"

namespace yoke::view {
namespace {

using device::Connection;
using device::Endpoint;
using device::LinkMatrix;
using device::Topology;

// Lengths in pixels.
constexpr double kMargin = 16, kGap = 10, kChipWidth = 100, kChipHeight = 52, kNodeWidth = 150, kNodeHeight = 66;
constexpr double kLevel = 26;                       // the distance between two rows of bridges
constexpr double kHeaderHeight = 30;                // for a package and for the page
constexpr double kLetter = 6.6, kBoldLetter = 8.2;  // estimated widths; real letters are seldom wider

constexpr SvgStyle kTopologyStyle{.light = R"(.pkg{fill:#f6f8fa;stroke:#8c959f}.node{fill:#fff;stroke:#8c959f}
.gpu{fill:#dafbe1;stroke:#1a7f37}.amd{fill:#ffe5e0;stroke:#cf222e}.pci{fill:#f6f8fa;stroke:#8c959f;stroke-dasharray:4 3}
.nic{fill:#ddf4ff;stroke:#0969da}.wire{fill:none;stroke:#59636e;stroke-width:1.5}.bar{stroke:#59636e;stroke-width:4}
.nv{fill:none;stroke:#1a7f37}.xgmi{fill:none;stroke:#cf222e}.on{stroke:#fff;stroke-width:4;paint-order:stroke})",
                                  .dark = R"(.pkg{fill:#151b23;stroke:#656c76}
.node{fill:#0d1117;stroke:#656c76}.gpu{fill:#0f2d17;stroke:#3fb950}.amd{fill:#3c1418;stroke:#f85149}
.pci{fill:#151b23;stroke:#656c76}.nic{fill:#0c2d54;stroke:#4493f8}.wire,.bar{stroke:#9198a1}.nv{stroke:#3fb950}
.xgmi{stroke:#f85149}.on{stroke:#0d1117})"};

/// Cuts `text` to `width` pixels of the small type.
std::string chip_text(std::string_view text, double width = 1e6) {
  return xml_text(text, std::max<int64_t>(1, static_cast<int64_t>(width / kLetter)));
}

/// A PCIe bridge with the bridges and endpoints below it.
struct Branch {
  std::map<std::string, Branch> below;
  std::vector<size_t> endpoints;

  bool forks() const { return below.size() + endpoints.size() > 1; }
  void collect(std::vector<size_t>& all) const {
    for (const auto& [name, branch] : below) branch.collect(all);
    all.insert(all.end(), endpoints.begin(), endpoints.end());
  }
};

/// A NUMA node with the bridges and devices connected to it. `node` is null for devices near no NUMA node.
struct Column {
  const device::NumaNode* node = nullptr;
  bool is_below = false;
  Branch root;
  double x = 0, width = kNodeWidth;
};

struct ChipPlace {
  double x = 0;  ///< The middle of the device's box.
  bool is_below = false;
};

class Drawing {
 public:
  Drawing(const Topology& topology, const LinkMatrix& matrix)
      : topology_(topology), matrix_(matrix), places_(matrix.endpoints.size()) {}

  std::string draw() {
    const auto title = machine_line(topology_);
    width_ = std::max(360.0, 2 * kMargin + kBoldLetter * static_cast<double>(display_width(title)));
    make_columns();
    int64_t depth = 0;
    for (const auto& column : columns_) depth = std::max(depth, depth_of(column.root, true));
    chip_offset_ = kHeaderHeight + kNodeHeight + 3 * kGap + kLevel * static_cast<double>(depth + 1);
    side_height_ = chip_offset_ + kChipHeight;
    auto arcs = find_arcs();
    auto bar = find_switched();
    if (bar.ends.empty()) bar = take_mesh(arcs);
    const bool has_below = std::ranges::any_of(columns_, [](const Column& column) { return column.is_below; });
    lane_height_ = lane_height(arcs, !bar.ends.empty(), has_below);
    height_ = top() + side_height_ + lane_height_ + (has_below ? side_height_ : 0) + kMargin;

    draw_packages();
    for (const auto& column : columns_)
      draw_branch(column, column.root, column.x + column.width / 2, kHeaderHeight + kNodeHeight + kGap, 0);
    for (size_t i = 0; i < places_.size(); ++i) draw_chip(i);
    draw_bar(bar);
    draw_arcs(arcs);
    draw_legend();
    text("b", kMargin, kMargin + 12, chip_text(title));
    return fmt::format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
               "height=\"{1:.0f}\" role=\"img\">\n<title>{2}</title>\n{3}"
               "<rect class=\"page\" x=\"0.5\" y=\"0.5\" width=\"{4:.0f}\" height=\"{5:.0f}\" rx=\"8\"/>\n",
               width_, height_, chip_text(title), svg_style(kTopologyStyle), width_ - 1, height_ - 1) +
           body_ + "</svg>\n";
  }

 private:
  struct Arc {
    size_t a, b;  ///< Two endpoints, from left to right.
    Connection connection;
  };

  // ---- Places

  static double top() { return kMargin + kHeaderHeight; }

  /// Returns the y at distance `offset` from the outer edge of a side. On the lower side, offsets count upwards.
  double y_of(bool is_below, double offset) const {
    return is_below ? top() + 2 * side_height_ + lane_height_ - offset : top() + offset;
  }
  /// Returns the upper edge of a box that begins at `offset`.
  double box_y(bool is_below, double offset, double height) const {
    return is_below ? y_of(true, offset) - height : y_of(false, offset);
  }
  /// Returns the y of the endpoint's edge from which its links start.
  double link_y(size_t endpoint) const { return y_of(places_[endpoint].is_below, side_height_); }

  void make_columns() {
    std::vector<std::optional<int64_t>> packages;
    for (const auto& node : topology_.numa_nodes) {
      if (std::ranges::find(packages, node.package) == packages.end()) packages.push_back(node.package);
      columns_.push_back({.node = &node});
    }
    std::ranges::sort(packages);
    for (auto& column : columns_) {
      const auto number = std::ranges::find(packages, column.node->package) - packages.begin();
      column.is_below = static_cast<size_t>(number) >= (packages.size() + 1) / 2;
    }
    std::ranges::stable_sort(columns_,
                             [](const Column& a, const Column& b) { return a.node->package < b.node->package; });
    Column elsewhere;
    for (size_t i = 0; i < matrix_.endpoints.size(); ++i) {
      const auto& endpoint = matrix_.endpoints[i];
      const auto column =
          std::ranges::find_if(columns_, [&](const Column& other) { return other.node->number == endpoint.numa_node; });
      auto* branch = column == columns_.end() ? &elsewhere.root : &column->root;
      for (const auto& bridge : endpoint.bridges) branch = &branch->below[bridge];
      branch->endpoints.push_back(i);
    }
    if (!elsewhere.root.below.empty() || !elsewhere.root.endpoints.empty()) columns_.push_back(std::move(elsewhere));
    double right[] = {kMargin + kGap, kMargin + kGap};
    for (auto& column : columns_) place_column(column, right[column.is_below ? 1 : 0]);
    width_ = std::max({width_, right[0] + kMargin - kGap, right[1] + kMargin - kGap});
  }

  void place_column(Column& column, double& x) {
    std::vector<size_t> endpoints;
    column.root.collect(endpoints);
    const auto chips = static_cast<double>(endpoints.size()) * (kChipWidth + kGap) - kGap;
    column.x = x;
    column.width = std::max(kNodeWidth, chips);
    x += (column.width - chips) / 2 + kChipWidth / 2;
    for (const auto endpoint : endpoints) {
      places_[endpoint] = {x, column.is_below};
      x += kChipWidth + kGap;
    }
    x = column.x + column.width + 2 * kGap;
  }

  /// Returns the largest number of forking bridges on a path from `branch` to a device. The root is the NUMA node,
  /// which is not a bridge.
  static int64_t depth_of(const Branch& branch, bool is_root) {
    int64_t deepest = 0;
    for (const auto& [name, below] : branch.below) deepest = std::max(deepest, depth_of(below, false));
    return deepest + (!is_root && branch.forks() ? 1 : 0);
  }

  /// Returns the x coordinates of the centres of the leftmost and the rightmost chip below a bridge.
  std::pair<double, double> extent(const Branch& branch) const {
    std::vector<size_t> all;
    branch.collect(all);
    const auto [least, most] =
        std::ranges::minmax_element(all, [&](size_t a, size_t b) { return places_[a].x < places_[b].x; });
    return {places_[*least].x, places_[*most].x};
  }

  // ---- Strokes

  void text(std::string_view classes, double x, double y, const std::string& content) {
    body_ += svg_text(x, y, classes, content);
  }
  void box(std::string_view classes, double x, double y, double width, double height) {
    body_ += fmt::format("<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"5\"/>\n",
                         classes, x, y, width, height);
  }
  void line(std::string_view classes, double x1, double y1, double x2, double y2) {
    body_ += fmt::format("<path class=\"{}\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\"/>\n", classes, x1, y1, x2, y2);
  }
  void curve(const Connection& connection, double x1, double y1, double control1, double x2, double y2,
             double control2) {
    const double width = 1 + 0.8 * static_cast<double>(std::min<int64_t>(8, connection.count));
    body_ += fmt::format(
        "<path class=\"{}\" stroke-width=\"{:.1f}\" d=\"M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}\"/>\n",
        connection.kind == Connection::Kind::kNvlink ? "nv" : "xgmi", width, x1, y1, x1, control1, x2, control2, x2,
        y2);
  }

  // ---- Parts

  void draw_packages() {
    for (size_t i = 0; i < columns_.size() && columns_[i].node != nullptr;) {
      const auto package = columns_[i].node->package;
      size_t end = i;
      while (end < columns_.size() && columns_[end].node != nullptr && columns_[end].node->package == package) ++end;
      const bool is_below = columns_[i].is_below;
      const double x = columns_[i].x - kGap;
      const double width = columns_[end - 1].x + columns_[end - 1].width + kGap - x - 4;
      const double height = kHeaderHeight + kNodeHeight + kGap;
      const double y = box_y(is_below, 0, height);
      box("pkg", x, y, width, height);
      text("b", x + kGap, is_below ? y + height - 11 : y + 20,
           package ? fmt::format("Package {}", *package) : "Several packages");
      for (; i < end; ++i) draw_node(columns_[i]);
    }
  }

  void draw_node(const Column& column) {
    const double y = box_y(column.is_below, kHeaderHeight, kNodeHeight);
    const double room = column.width - 2 * kGap;
    box("node", column.x, y, column.width, kNodeHeight);
    text("b", column.x + kGap, y + 19, fmt::format("NUMA node {}", column.node->number));
    text("m", column.x + kGap, y + 37, format_bytes(column.node->memory_bytes));
    text("m", column.x + kGap, y + 54, chip_text("CPUs " + column.node->cpus, room));
  }

  /// Draws lines from `x` at `offset` to everything below `branch`.
  void draw_branch(const Column& column, const Branch& branch, double x, double offset, int64_t level) {
    const bool is_root = level == 0;
    const bool has_bar = !is_root && branch.forks();
    const auto y = [&](double from_edge) { return y_of(column.is_below, from_edge); };
    if (has_bar) {
      const auto [least, most] = extent(branch);
      const double bar = chip_offset_ - kLevel * static_cast<double>(depth_of(branch, false));  // close to the chips
      line("wire", x, y(offset), x, y(bar));
      line("bar", least - 8, y(bar), most + 8, y(bar));
      text("m", x + 6, column.is_below ? y(bar) + 13 : y(bar) - 5,
           level == 1             ? "host bridge"
           : branch.below.empty() ? "one card"
                                  : "PCIe switch");
      offset = bar;
      used_bar_ = true;
    }
    for (const auto& [name, below] : branch.below) {
      const auto [least, most] = extent(below);
      draw_branch(column, below, is_root || has_bar ? (least + most) / 2 : x, offset, level + 1);
    }
    for (const auto i : branch.endpoints) line("wire", places_[i].x, y(offset), places_[i].x, y(chip_offset_));
  }

  void draw_chip(size_t number) {
    const auto& endpoint = matrix_.endpoints[number];
    const auto* kind = endpoint.kind == Endpoint::Kind::kNic      ? "nic"
                       : endpoint.kind == Endpoint::Kind::kSilent ? "pci"
                       : endpoint.name.starts_with("AMD")         ? "amd"
                                                                  : "gpu";
    const double x = places_[number].x;
    const double y = box_y(places_[number].is_below, chip_offset_, kChipHeight);
    std::string_view name = endpoint.name;
    for (const std::string_view maker :
         {"NVIDIA ", "AMD ", "GeForce ", "Radeon ", "Instinct "}) {  // the rest of the name has more information
      if (name.starts_with(maker)) name.remove_prefix(maker.size());
    }
    std::string_view bus_id = endpoint.pci_bus_id;
    if (bus_id.starts_with("0000:")) bus_id.remove_prefix(5);
    box(kind, x - kChipWidth / 2, y, kChipWidth, kChipHeight);
    text("b c", x, y + 17, endpoint.label);
    text("c", x, y + 32, chip_text(name, kChipWidth - 4));
    text("m c", x, y + 45, chip_text(bus_id, kChipWidth - 4));
  }

  // ---- Links

  bool is_direct(size_t a, size_t b) const {
    const auto leads_to = [&](size_t from, size_t to) {
      const auto& links = matrix_.endpoints[from].links;
      return std::ranges::any_of(links, [&](const device::Link& link) {
        return link.is_active && link.remote_pci_bus_id == matrix_.endpoints[to].pci_bus_id;
      });
    };
    return leads_to(a, b) || leads_to(b, a);
  }

  std::vector<Arc> find_arcs() const {
    std::vector<Arc> arcs;
    for (size_t a = 0; a < places_.size(); ++a) {
      for (size_t b = a + 1; b < places_.size(); ++b) {
        const auto& connection = matrix_.connections[a][b];
        const bool is_link = connection.kind == Connection::Kind::kXgmi || connection.kind == Connection::Kind::kNvlink;
        if (!is_link || !is_direct(a, b)) continue;
        arcs.push_back(places_[a].x < places_[b].x ? Arc{a, b, connection} : Arc{b, a, connection});
      }
    }
    return arcs;
  }

  /// A bar to which a set of GPUs is connected, drawn instead of links between every two of them.
  struct Bar {
    std::string title;
    std::map<size_t, std::string> ends;  ///< By GPU: the text beside the GPU's line.
  };

  Bar find_switched() const {
    Bar bar{"NVSwitch", {}};
    for (size_t a = 0; a < places_.size(); ++a) {
      for (size_t b = 0; b < places_.size(); ++b) {
        const auto& connection = matrix_.connections[a][b];
        if (connection.kind == Connection::Kind::kNvlink && !is_direct(a, b)) bar.ends[a] = label(connection);
      }
    }
    return bar;
  }

  /// Replaces the arcs by a bar if many GPUs all have the same link to each other, because so many arcs would be
  /// unreadable.
  static Bar take_mesh(std::vector<Arc>& arcs) {
    Bar bar;
    for (const auto& arc : arcs) {
      bar.ends[arc.a];
      bar.ends[arc.b];
      if (arc.connection != arcs.front().connection) return {};
    }
    const auto count = bar.ends.size();
    if (count < 5 || arcs.size() != count * (count - 1) / 2) return {};
    bar.title = fmt::format("{} between each two", label(arcs.front().connection));
    arcs.clear();
    return bar;
  }

  bool crosses(const Arc& arc) const { return places_[arc.a].is_below != places_[arc.b].is_below; }
  double length(const Arc& arc) const { return places_[arc.b].x - places_[arc.a].x; }

  /// Returns how far an arc between two GPUs on the same side bends. Longer arcs bend more.
  double bend(const Arc& arc) const { return 26 + std::min(length(arc), 900.0) / 4.5; }

  double lane_height(const std::vector<Arc>& arcs, bool has_bar, bool has_below) const {
    double bends[] = {0, 0};
    bool any_crosses = false;
    for (const auto& arc : arcs) {
      auto& most = bends[places_[arc.a].is_below ? 1 : 0];
      if (!crosses(arc)) most = std::max(most, bend(arc));
      any_crosses = any_crosses || crosses(arc);
    }
    double height = bends[0] + bends[1] + (arcs.empty() ? 0 : 20);
    if (any_crosses) height = std::max(height, 160.0);
    if (has_bar) height = std::max(height, has_below ? 5 * kLevel : 3 * kLevel + 8);
    return std::max(height, 30.0);
  }

  void draw_bar(const Bar& bar) {
    if (bar.ends.empty()) return;
    const double height = 28;
    const bool has_below = std::ranges::any_of(bar.ends, [&](const auto& end) { return places_[end.first].is_below; });
    const double y = top() + side_height_ + (has_below ? (lane_height_ - height) / 2 : 2 * kLevel);
    double least = 1e9, most = 0;
    for (const auto& [number, beside] : bar.ends) {
      const auto& place = places_[number];
      const double from = link_y(number), to = place.is_below ? y + height : y;
      const auto* kind = matrix_.endpoints[number].links.front().kind == "nvlink" ? "nv" : "xgmi";
      body_ +=
          fmt::format("<path class=\"{}\" stroke-width=\"4\" d=\"M{:.1f} {:.1f}V{:.1f}\"/>\n", kind, place.x, from, to);
      if (!beside.empty()) text("on c", place.x + 22, (from + to) / 2 + 4, beside);
      least = std::min(least, place.x);
      most = std::max(most, place.x);
    }
    box("node", least - kChipWidth / 2, y, most - least + kChipWidth, height);
    text("b c", (least + most) / 2, y + 19, bar.title);
  }

  /// Returns the x at which an arc ends on its chip. The ends are ordered so that arcs do not cross near the chip.
  double end_of(const Arc& arc, size_t at, const std::vector<Arc>& arcs) const {
    // From left to right: arcs to the left, the shortest first; arcs to the other side; arcs to the right, the longest
    // first.
    const auto order = [&](const Arc& one) {
      const auto other = places_[one.a == at ? one.b : one.a].x;
      if (crosses(one)) return std::pair(1, other);
      return std::pair(other < places_[at].x ? 0 : 2, -other);
    };
    double before = 0, count = 0;
    for (const auto& one : arcs) {
      if (one.a != at && one.b != at) continue;
      count += 1;
      if (order(one) < order(arc)) before += 1;
    }
    return places_[at].x + (before - (count - 1) / 2) * std::min(18.0, (kChipWidth - 12) / count);
  }

  void draw_arcs(const std::vector<Arc>& arcs) {
    std::vector<std::pair<double, double>> middles;
    for (const auto& arc : arcs) {
      const double x1 = end_of(arc, arc.a, arcs), x2 = end_of(arc, arc.b, arcs);
      const double y1 = link_y(arc.a), y2 = link_y(arc.b);
      if (crosses(arc)) {
        curve(arc.connection, x1, y1, (y1 + y2) / 2, x2, y2, (y1 + y2) / 2);
        middles.emplace_back((x1 + x2) / 2, (y1 + y2) / 2);
      } else {
        const double depth = places_[arc.a].is_below ? -bend(arc) : bend(arc);
        curve(arc.connection, x1, y1, y1 + depth / 0.75, x2, y2, y2 + depth / 0.75);
        middles.emplace_back((x1 + x2) / 2, y1 + depth);
      }
    }
    for (size_t i = 0; i < arcs.size(); ++i) {  // labels are drawn after all arcs, so that no arc covers them
      text("on c", middles[i].first, middles[i].second + 4, label(arcs[i].connection));
    }
  }

  void draw_legend() {
    std::set<Connection::Kind> kinds;
    for (const auto& row : matrix_.connections) {
      for (const auto& connection : row) kinds.insert(connection.kind);
    }
    std::vector<std::string> words;
    if (kinds.contains(Connection::Kind::kNvlink)) words.emplace_back("NV#: # NVLinks");
    if (kinds.contains(Connection::Kind::kXgmi)) words.emplace_back("XGMI#: # links of Infinity Fabric");
    if (used_bar_) words.emplace_back("thick bar: a PCIe bridge shared by what hangs from it");
    for (const auto& word : words) {
      height_ += 16;
      text("m", kMargin, height_ - kMargin, word);
    }
  }

  const Topology& topology_;
  const LinkMatrix& matrix_;
  std::vector<Column> columns_;
  std::vector<ChipPlace> places_;  ///< One for each endpoint.
  double chip_offset_ = 0, side_height_ = 0, lane_height_ = 0, width_ = 0, height_ = 0;
  bool used_bar_ = false;
  std::string body_;
};

}  // namespace

std::string topology_svg(const Topology& topology, const LinkMatrix& matrix) {
  return Drawing(topology, matrix).draw();
}

}  // namespace yoke::view
