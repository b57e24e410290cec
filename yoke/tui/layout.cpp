#include "yoke/tui/layout.h"

#include <algorithm>

namespace yoke::tui {
namespace {

using device::Device;
using device::Vendor;

/// The lines of the page that are not available for devices.
struct Frame {
  int64_t top = 0;           ///< Lines of the title.
  int64_t bottom = 0;        ///< Lines of the footer.
  int64_t process_rows = 0;  ///< Lines reserved for processes, with the heading.
};

Frame frame_of(const Model& model) {
  const auto height = model.size.height;
  Frame frame{.top = height >= 3 ? 1 : 0, .bottom = height >= 5 && !model.is_plain ? 1 : 0};
  if (model.shows_processes && height >= 6) frame.process_rows = std::clamp<int64_t>(height / 6, 3, 10);
  return frame;
}

struct Line {
  const Device* device;
  std::string id;
};

/// A device with its instances, which are kept together.
struct Group {
  std::vector<Line> lines;
  int64_t height(int64_t block) const { return block + static_cast<int64_t>(lines.size()) - 1; }
};

std::vector<Group> groups_of(const device::Snapshot& snapshot, bool is_cpu) {
  std::vector<Group> groups;
  for (const auto& device : snapshot.devices) {
    if ((device.vendor == Vendor::kCpu) != is_cpu) continue;
    auto& lines = groups.emplace_back().lines;
    lines.push_back({&device, id_of(device)});
    for (const auto& instance : device.instances) lines.push_back({&instance, id_of(device, instance)});
  }
  return groups;
}

/// The arrangement of groups in columns of about equal height.
struct Flow {
  int64_t num_columns = 1;
  int64_t block = 1;   ///< The number of lines of a device; each of its instances has one line.
  int64_t height = 0;  ///< The height of the highest column.
  std::vector<size_t> column_of;
};

Flow flow(const std::vector<Group>& groups, int64_t num_columns, int64_t block) {
  int64_t total = 0;
  for (const auto& group : groups) total += group.height(block);
  Flow result{.num_columns = num_columns, .block = block};
  const auto share = (total + num_columns - 1) / num_columns;
  int64_t used = 0;
  size_t column = 0;
  for (const auto& group : groups) {
    const auto height = group.height(block);
    if (used >= share && column + 1 < static_cast<size_t>(num_columns)) {
      used = 0;
      ++column;
    }
    used += height;
    result.height = std::max(result.height, used);
    result.column_of.push_back(column);
  }
  return result;
}

constexpr int64_t kGap = 2;  ///< Empty cells between two columns of devices.
constexpr int64_t kTwoColumns = 150, kTwoColumnsOfBlocks = 110;

Rect column_rect(const Model& model, int64_t column, int64_t num_columns) {
  const auto width = (model.size.width - kGap * (num_columns - 1)) / num_columns;
  return {.x = column * (width + kGap), .width = width};
}

/// Returns the largest blocks with which `groups` fit into `rows`, or nullopt if not even the smallest blocks fit.
std::optional<Flow> blocks_that_fit(const std::vector<Group>& groups, const Model& model, int64_t rows) {
  if (model.is_compact || model.size.width < 40) return std::nullopt;
  const int64_t most_columns = model.size.width >= kTwoColumnsOfBlocks && groups.size() > 1 ? 2 : 1;
  const int64_t highest = model.shows_processes ? 7 : 14;
  for (int64_t block = highest; block >= 3; --block) {
    for (int64_t columns = 1; columns <= most_columns;
         ++columns) {  // one column is tried first: wide graphs show more history
      const auto result = flow(groups, columns, block);
      if (result.height <= rows) return result;
    }
  }
  return std::nullopt;
}

/// Places blocks from line `y` on. Returns the line after the last block.
int64_t place_blocks(const std::vector<Group>& groups, const Flow& flow, const Model& model, int64_t y,
                     Layout& layout) {
  std::vector<int64_t> next(static_cast<size_t>(flow.num_columns), y);
  for (size_t i = 0; i < groups.size(); ++i) {
    const auto column = flow.column_of[i];
    for (const auto& line : groups[i].lines) {
      auto rect = column_rect(model, static_cast<int64_t>(column), flow.num_columns);
      rect.y = next[column];
      rect.height = &line == &groups[i].lines.front() ? flow.block : 1;
      next[column] += rect.height;
      layout.devices.push_back({line.device, line.id, rect});
    }
  }
  return y + flow.height;
}

/// Places one line for each device from line `y` on, in at most `rows` lines. If there are too many devices, begins
/// with first_device. Returns the line after the last one.
int64_t place_lines(const std::vector<Group>& groups, const Model& model, int64_t y, int64_t rows, Layout& layout) {
  std::vector<Line> lines;
  for (const auto& group : groups) lines.insert(lines.end(), group.lines.begin(), group.lines.end());
  const auto count = static_cast<int64_t>(lines.size());
  if (count == 0 || rows <= 0) return y;
  const int64_t num_columns = count > rows && model.size.width >= kTwoColumns ? 2 : 1;
  const auto height = std::min(rows, (count + num_columns - 1) / num_columns);
  layout.first_device = std::clamp<int64_t>(model.first_device, 0, std::max<int64_t>(0, count - height * num_columns));
  for (int64_t i = 0; i < std::min(count - layout.first_device, height * num_columns); ++i) {
    auto rect = column_rect(model, i / height, num_columns);
    rect.y = y + i % height;
    rect.height = 1;
    const auto& line = lines[static_cast<size_t>(layout.first_device + i)];
    layout.devices.push_back({line.device, line.id, rect});
  }
  return y + height;
}

/// Places devices from line `y` on. Returns the line after the last one.
int64_t place_devices(const Model& model, int64_t y, int64_t rows, Layout& layout) {
  if (!model.sample || rows <= 0) return y;
  const auto& snapshot = model.sample->snapshot;
  const auto cpus = groups_of(snapshot, true), gpus = groups_of(snapshot, false);
  device::for_each_device(snapshot, [&](const Device&, const std::string& id) {
    layout.id_width = std::max(layout.id_width, std::ssize(id));
  });
  for (const auto& group : gpus) layout.num_gpus += static_cast<int64_t>(group.lines.size());
  layout.num_gpus_shown = layout.num_gpus;
  const bool has_gpus = !gpus.empty();
  // Blocks are optional, so they must leave more lines to the processes than devices of one line must.
  const auto block_rows = model.shows_processes ? std::min(rows, model.size.height * 3 / 5) : rows;
  constexpr int64_t kCpuBlock = 4;
  if (has_gpus) {
    const bool is_roomy = model.size.height >= 40;
    const auto cpu_rows = cpus.empty() ? 0 : is_roomy ? kCpuBlock : 1;
    if (const auto fitting = blocks_that_fit(gpus, model, block_rows - cpu_rows)) {
      y = cpu_rows > 1 ? place_blocks(cpus, flow(cpus, 1, cpu_rows), model, y, layout)
                       : place_lines(cpus, model, y, cpu_rows, layout);
      return place_blocks(gpus, *fitting, model, y, layout);
    }
  } else if (const auto fitting = blocks_that_fit(cpus, model, block_rows - 1)) {
    y = place_blocks(cpus, *fitting, model, y, layout);
    layout.note = y;
    return y + 1;
  }
  const auto end = y + rows;
  const auto num_lines = layout.num_gpus + static_cast<int64_t>(cpus.size());
  if (rows > num_lines && model.size.width >= 40 && model.size.height >= 12) layout.device_heading = y++;
  y = place_lines(cpus, model, y, end - y, layout);
  if (has_gpus) {
    const auto num_before = layout.devices.size();
    y = place_lines(gpus, model, y, end - y, layout);
    layout.num_gpus_shown = static_cast<int64_t>(layout.devices.size() - num_before);
    return y;
  }
  if (y < end) layout.note = y++;
  return y;
}

}  // namespace

std::vector<ProcessColumn> process_columns(const Model& model) {
  if (!model.shows_processes) return {};
  const auto width = model.size.width;
  const auto is_wide = [&](int64_t at_least) { return width >= at_least; };
  std::vector<ProcessColumn> columns;
  columns.push_back({ProcessField::kPid, "PID", SortBy::kPid, Align::kRight, 0, 7});
  columns.push_back({ProcessField::kUser, "USER", SortBy::kUser, Align::kLeft, 0, is_wide(100) ? 12 : 8});
  columns.push_back({ProcessField::kDevice, "DEV", SortBy::kDevice, Align::kLeft, 0, 4});
  columns.push_back({ProcessField::kMemory, "MEMORY", SortBy::kMemory, Align::kRight, 0, 10});
  if (is_wide(56)) columns.push_back({ProcessField::kUtilization, "UTIL", SortBy::kUtilization, Align::kRight, 0, 5});
  if (is_wide(64)) columns.push_back({ProcessField::kAge, "AGE", SortBy::kAge, Align::kRight, 0, 9});
  if (model.shows_origins.value_or(is_wide(110))) {
    const int64_t origin_width = is_wide(140) ? 24 : is_wide(110) ? 20 : 16;
    columns.push_back({ProcessField::kOrigin, "ORIGIN", {}, Align::kLeft, 0, origin_width});
  }
  columns.push_back({ProcessField::kCommand, "COMMAND", {}, Align::kLeft, 0, 0});
  int64_t x = 0;
  for (auto& column : columns) {
    column.x = x;
    if (column.field == ProcessField::kCommand) column.width = std::max<int64_t>(0, width - x);
    x += column.width + 1;
  }
  return columns;
}

Layout layout_of(const Model& model) {
  Layout layout;
  const auto frame = frame_of(model);
  const auto height = model.size.height;
  if (frame.bottom > 0) layout.footer = height - 1;
  const auto end = height - frame.bottom;
  auto y = place_devices(model, frame.top, end - frame.top - frame.process_rows, layout);
  if (frame.process_rows == 0) return layout;
  const bool has_air = end - y >= 8;  // room for an empty line
  layout.process_heading = has_air ? ++y : y;
  layout.processes = {0, y + 1, model.size.width, end - y - 1};
  layout.columns = process_columns(model);
  return layout;
}

bool shows_clocks(const Model& model) { return model.size.width >= 110; }

}  // namespace yoke::tui
