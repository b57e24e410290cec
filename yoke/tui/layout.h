// yoke/tui/layout.h -- computes the position of everything on the page, for drawing and for the mouse. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "yoke/base/text.h"
#include "yoke/tui/model.h"

namespace yoke::tui {

/// The position of a device, which is shown as a line or as a block with graphs.
struct DevicePlace {
  const device::Device* device = nullptr;  ///< Points into the model's snapshot.
  std::string id;
  Rect rect;
};

enum class ProcessField { kPid, kUser, kDevice, kMemory, kUtilization, kAge, kOrigin, kCommand };

struct ProcessColumn {
  ProcessField field = ProcessField::kPid;
  const char* title = "";
  std::optional<SortBy> sort_by;
  Align align = Align::kLeft;
  int64_t x = 0, width = 0;
};

struct Layout {
  std::vector<DevicePlace> devices;  ///< The devices that are on the page.
  int64_t id_width = 1;              ///< Width of the longest id, shown or not.
  int64_t num_gpus = 0;              ///< Number of all GPUs and instances, shown or not.
  int64_t num_gpus_shown = 0;
  int64_t first_device = 0;               ///< Model::first_device, clamped to the bounds.
  std::optional<int64_t> device_heading;  ///< Line of the titles above one-line devices.
  std::optional<int64_t> note;            ///< Line that says why there is no GPU.
  std::vector<ProcessColumn> columns;     ///< Empty when processes are not shown.
  std::optional<int64_t> process_heading;
  Rect processes;
  std::optional<int64_t> footer;
};

Layout layout_of(const Model& model);

/// Returns the columns of the process list on a page of this width. Values that no column shows are not read.
std::vector<ProcessColumn> process_columns(const Model& model);

/// Whether a page of this size has room for clocks and the reasons why they are slow.
bool shows_clocks(const Model& model);

}  // namespace yoke::tui
