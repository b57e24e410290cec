// yoke/view/topology.h -- shows a machine's topology as text, JSON and a drawing. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "yoke/device/topology/connections.h"

namespace yoke::view {

/// Returns a line about the machine, the matrix with a legend, and the NUMA nodes with the devices near them. A matrix
/// wider than `width` columns is divided into blocks, one below the other.
std::string topology_text(const device::Topology& topology, const device::LinkMatrix& matrix, int64_t width);

/// Returns the JSON that docs/topo.md describes.
nlohmann::ordered_json topology_json(const device::Topology& topology, const device::LinkMatrix& matrix);

/// Draws the topology for a web page. The SVG has no scripts or external fonts, and suits light and dark backgrounds.
std::string topology_svg(const device::Topology& topology, const device::LinkMatrix& matrix);

/// Returns "AMD EPYC 7A53 64-Core Processor: 1 package, 4 NUMA nodes, 64 cores, 128 CPUs, L3 8 x 32.0 MiB".
std::string machine_line(const device::Topology& topology);

}  // namespace yoke::view
